package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hansard"
	"hansard/transcript"
)

// listArgs ask for sessions.
type listArgs struct {
	Text   string            `json:"text,omitempty" jsonschema:"only sessions whose id or title contains this"`
	Prefix string            `json:"prefix,omitempty" jsonschema:"only sessions whose id begins with this"`
	Labels map[string]string `json:"labels,omitempty" jsonschema:"only sessions that have all of these labels"`
	Limit  int               `json:"limit,omitempty" jsonschema:"how many at most: 1 to 50, 20 if it is left out"`
	Cursor string            `json:"cursor,omitempty" jsonschema:"continues a list: the cursor at the end of it"`
}

func (s *server) list(ctx context.Context, _ *sdk.CallToolRequest, in listArgs) (string, error) {
	most, err := limit("limit", in.Limit, defaultListed, maxListed)
	if err != nil {
		return "", err
	}
	if len(in.Text) > maxQuery {
		return "", errors.New("the text is too long")
	}
	infos, cursor, err := s.sessions(ctx, hansard.Query{Text: in.Text, Prefix: in.Prefix, Labels: in.Labels, Cursor: in.Cursor}, most)
	if err != nil {
		return "", err
	}
	if len(infos) == 0 {
		return "There are no such sessions.", nil
	}
	var b strings.Builder
	for i := range infos {
		b.WriteString(s.titled(ctx, &infos[i]) + "\n")
	}
	if cursor != "" {
		fmt.Fprintf(&b, "\nThere are more: list_sessions with the same arguments and cursor=%s\n", cursor)
	}
	return b.String(), nil
}

// sessions lists sessions. The cursor is empty if there are no more.
func (s *server) sessions(ctx context.Context, q hansard.Query, most int) (infos []hansard.Info, cursor string, err error) {
	q.Limit = most + 1
	for info, err := range s.store.List(ctx, q) {
		if err != nil {
			return nil, "", err
		}
		if len(infos) == most {
			return infos, infos[most-1].Cursor, nil
		}
		infos = append(infos, info)
	}
	return infos, "", nil
}

// describe is a session on one line.
func describe(info *hansard.Info) string {
	if info.Unreadable != "" {
		return fmt.Sprintf("%s · it can't be read", info.ID)
	}
	var b strings.Builder
	b.WriteString(string(info.ID))
	if info.Title != "" {
		fmt.Fprintf(&b, " %q", line(info.Title, 200))
	}
	fmt.Fprintf(&b, " · %d events · %d bytes · updated %s", info.LastSeq, info.Bytes, info.Updated.UTC().Format("2006-01-02 15:04:05"))
	for i, name := range slices.Sorted(maps.Keys(info.Labels)) {
		if i == 8 {
			fmt.Fprintf(&b, " · %d labels more", len(info.Labels)-i)
			break
		}
		fmt.Fprintf(&b, " · %s=%s", line(name, 60), line(info.Labels[name], 60))
	}
	if info.Turn != nil {
		b.WriteString(" · somebody holds its turn")
	}
	if info.Damage != nil {
		b.WriteString(" · damaged")
	}
	return b.String()
}

// titled is a session on one line; without a title it has the first prompt.
func (s *server) titled(ctx context.Context, info *hansard.Info) string {
	text := describe(info)
	if info.Title != "" || info.Unreadable != "" {
		return text
	}
	const among = 5 // events
	for e, err := range s.store.Read(ctx, info.ID, hansard.Range{Limit: among, Kinds: []string{hansard.KindMessage}}) {
		if err != nil {
			break // it may have been deleted since
		}
		if prompt := transcript.Of(e).Preview(120); prompt != "" {
			return text + " · begins: " + line(prompt, 120)
		}
	}
	return text
}

// searchArgs ask for a text.
type searchArgs struct {
	Text    string `json:"text" jsonschema:"the words to look for, all of which must be there; \"words in quotes\" must stand together, and deplo* stands for any ending"`
	Session string `json:"session,omitempty" jsonschema:"look into this session only"`
	Offset  int    `json:"offset,omitempty" jsonschema:"skip the first hits, to continue a search"`
	Before  int64  `json:"before,omitempty" jsonschema:"in a session, where the store can't search for words: events before this seq only, to continue"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many at most: 1 to 50, 10 if it is left out"`
}

func (s *server) search(ctx context.Context, _ *sdk.CallToolRequest, in searchArgs) (string, error) {
	most, err := limit("limit", in.Limit, defaultFound, maxMatches)
	switch {
	case err != nil:
		return "", err
	case strings.TrimSpace(in.Text) == "":
		return "", errors.New("there is nothing to look for")
	case len(in.Text) > maxQuery:
		return "", fmt.Errorf("the text is longer than %d bytes", maxQuery)
	case in.Before < 0 || in.Offset < 0:
		return "", errors.New("a seq is 1 or more, and an offset 0 or more")
	}
	if searcher, ok := s.store.(hansard.Searcher); ok && in.Before == 0 {
		text, err := s.searchWords(ctx, searcher, in, most)
		if !errors.Is(err, hansard.ErrUnsupported) {
			return text, err
		}
	}
	switch {
	case in.Offset > 0:
		return "", errors.New("this store can't search for words: continue with before, in a session")
	case in.Session != "":
		return s.searchIn(ctx, in, most)
	case in.Before > 0:
		return "", errors.New("before is for a search in a session")
	}
	return s.searchTitles(ctx, in, most)
}

// searchWords asks a store that can find words in the events of all sessions.
func (s *server) searchWords(ctx context.Context, searcher hansard.Searcher, in searchArgs, most int) (string, error) {
	if in.Session != "" { // a missing session is an error, not an empty result
		if _, err := s.store.Stat(ctx, hansard.SessionID(in.Session)); err != nil {
			return "", err
		}
	}
	var b strings.Builder
	n := 0
	for hit, err := range searcher.Search(ctx, hansard.SearchQuery{Text: in.Text, In: hansard.SessionID(in.Session), Limit: most + 1, Offset: in.Offset}) {
		if err != nil {
			return "", err
		}
		if n++; n > most {
			fmt.Fprintf(&b, "There are more: search_sessions with the same arguments and offset=%d\n", in.Offset+most)
			break
		}
		e := hansard.Event{Seq: hit.Seq, Time: hit.Time, Kind: hit.Kind}
		head := heading(hit.Session, &e, &transcript.Reading{Role: hit.Role, Author: hit.Author})
		if in.Session == "" && hit.Title != "" {
			head += fmt.Sprintf(" in %q", line(hit.Title, 80))
		}
		fmt.Fprintf(&b, "%s\n%s\n\n", head, indent(line(hit.Snippet, 2*aroundBytes)))
	}
	if n == 0 {
		return "Nothing was found.\n", nil
	}
	return b.String(), nil
}

// searchTitles looks for a text in the titles and ids of sessions.
func (s *server) searchTitles(ctx context.Context, in searchArgs, most int) (string, error) {
	infos, cursor, err := s.sessions(ctx, hansard.Query{Text: in.Text}, most)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if len(infos) == 0 {
		b.WriteString("No session has this in its title or id.\n")
	}
	for i := range infos {
		b.WriteString(s.titled(ctx, &infos[i]) + "\n")
	}
	if cursor != "" {
		b.WriteString("\nThere are more: list_sessions with this text.\n")
	}
	b.WriteString("\nOnly titles and ids were searched. To look into a session: search_sessions with session=ID.\n")
	return b.String(), nil
}

// searchIn looks for a text in what people read in a session's events, newest first.
func (s *server) searchIn(ctx context.Context, in searchArgs, most int) (string, error) {
	id := hansard.SessionID(in.Session)
	info, err := s.store.Stat(ctx, id)
	if err != nil {
		return "", err
	}
	rng := hansard.Range{Before: hansard.Seq(in.Before), Reverse: true}
	if info.Damage != nil && (rng.Before == 0 || rng.Before > info.Damage.SafeSeq+1) {
		rng.Before = info.Damage.SafeSeq + 1
	}
	var b strings.Builder
	found, n, size := 0, 0, 0
	through, more := hansard.Seq(0), false
	want := strings.ToLower(in.Text)
	for e, err := range s.store.Read(ctx, id, rng) {
		if err != nil {
			if n == 0 || !errors.Is(err, hansard.ErrDamaged) {
				return "", err
			}
			break
		}
		if found == most || n == maxScan || size > maxScanBytes {
			more = true
			break
		}
		n, size, through = n+1, size+len(e.Data), e.Seq
		if isNoise(&e) {
			continue
		}
		r := transcript.Of(e)
		if excerpt, ok := around(clean(r.PlainText()), want); ok {
			found++
			fmt.Fprintf(&b, "%s\n%s\n\n", heading(id, &e, &r), indent(excerpt))
		}
	}
	if found == 0 {
		b.WriteString("Nothing was found.\n")
	}
	if more {
		fmt.Fprintf(&b, "Searched back to %s; to continue: search_sessions session=%s before=%d with the same text\n", cite(id, through), id, through)
	}
	return b.String(), nil
}

// aroundBytes is how much is shown on either side of what was found.
const aroundBytes = 160

// around is the text around the first occurrence of want, which is in lower case.
func around(in, want string) (string, bool) {
	lower := strings.ToLower(in)
	at := strings.Index(lower, want)
	if at < 0 {
		return "", false
	}
	if len(lower) != len(in) {
		in = lower // some letters have more bytes in the other case: the offset would not be exact
	}
	begin, end := max(0, at-aroundBytes), min(len(in), at+len(want)+aroundBytes)
	text := line(strings.ToValidUTF8(in[begin:end], ""), len(want)+2*aroundBytes)
	if begin > 0 {
		text = "…" + text
	}
	if end < len(in) && !strings.HasSuffix(text, "…") {
		text += "…"
	}
	return text, true
}
