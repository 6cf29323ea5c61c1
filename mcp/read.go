package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hansard"
	"hansard/transcript"
)

// readArgs ask for a page of a session.
type readArgs struct {
	Session  string   `json:"session" jsonschema:"the session's id"`
	Before   int64    `json:"before,omitempty" jsonschema:"read what comes before this seq: older events"`
	After    int64    `json:"after,omitempty" jsonschema:"read what comes after this seq: newer events"`
	Kinds    []string `json:"kinds,omitempty" jsonschema:"only events of these kinds, such as message, tool_call, tool_result, summary"`
	MaxBytes int      `json:"max_bytes,omitempty" jsonschema:"how much text to return at most: 1024 to 65536, 16384 if it is left out"`
}

// shown is an event in an answer.
type shown struct {
	seq  hansard.Seq
	text string
}

func (s *server) read(ctx context.Context, _ *sdk.CallToolRequest, in readArgs) (string, error) {
	most, err := limit("max_bytes", in.MaxBytes, defaultAnswer, maxAnswer)
	switch {
	case err != nil:
		return "", err
	case in.Before < 0 || in.After < 0:
		return "", errors.New("a seq is 1 or more")
	case in.Before > 0 && in.After > 0:
		return "", errors.New("give before or after, not both")
	case len(in.Kinds) > 20:
		return "", errors.New("there are more than 20 kinds")
	}
	most = max(most, leastAnswer)
	id := hansard.SessionID(in.Session)
	info, err := s.store.Stat(ctx, id)
	if err != nil {
		return "", err
	}
	rng := hansard.Range{After: hansard.Seq(in.After), Before: hansard.Seq(in.Before), Kinds: in.Kinds, Reverse: in.After == 0}
	if info.Damage != nil && rng.Reverse {
		// What follows the damage can't be read: the page ends before it.
		rng.Before = min(cmp.Or(rng.Before, info.Damage.SafeSeq+1), info.Damage.SafeSeq+1)
	}
	p, err := s.page(ctx, id, rng, most)
	if err != nil {
		return "", err
	}
	return p.text(&info, in), nil
}

// readPage is a part of a session.
type readPage struct {
	events []shown // in the order of the session
	// first and last are the first and last event that were read, 0 if none.
	first, last hansard.Seq
	more        bool  // there are more in the direction of reading
	damage      error // what the page ends with
}

// page reads as many events as fit.
func (s *server) page(ctx context.Context, id hansard.SessionID, rng hansard.Range, most int) (*readPage, error) {
	p := &readPage{}
	size, n, bytes := 0, 0, 0
	for e, err := range s.store.Read(ctx, id, rng) {
		if err != nil {
			if errors.Is(err, hansard.ErrDamaged) && n > 0 {
				p.damage = err
				break
			}
			return nil, err
		}
		text := ""
		if len(rng.Kinds) > 0 || !isNoise(&e) {
			text = eventText(id, &e, max(leastAnswer, most/4))
		}
		if n == maxScan || bytes > maxScanBytes || len(p.events) > 0 && size+len(text) > most {
			p.more = true
			break
		}
		n, bytes, size = n+1, bytes+len(e.Data), size+len(text)
		if p.first == 0 || e.Seq < p.first {
			p.first = e.Seq
		}
		p.last = max(p.last, e.Seq)
		if text != "" {
			p.events = append(p.events, shown{e.Seq, text})
		}
	}
	if rng.Reverse {
		slices.Reverse(p.events)
	}
	return p, nil
}

// isNoise reports whether an event is one that nobody reads a session for: a turn
// record, or a change of metadata.
func isNoise(e *hansard.Event) bool {
	return e.Kind == hansard.KindTurn || e.Kind == hansard.KindMeta && string(e.Data) == "null"
}

// eventText is an event, cut to a size.
func eventText(id hansard.SessionID, e *hansard.Event, most int) string {
	r := transcript.Of(*e)
	whole := body(&r)
	if whole == "" {
		return heading(id, e, &r) + "\n\n"
	}
	part := cut(whole, most)
	text := heading(id, e, &r) + "\n" + indent(part)
	if len(part) < len(whole) {
		text += fmt.Sprintf("\n… %d of %d bytes; the rest: read_event session=%s seq=%d offset=%d", len(part), len(whole), id, e.Seq, len(part))
	}
	return text + "\n\n"
}

// text is the answer.
func (p *readPage) text(info *hansard.Info, in readArgs) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Session %s\n\n", describe(info))
	for _, e := range p.events {
		b.WriteString(e.text)
	}
	if len(p.events) == 0 {
		b.WriteString("There are no such events here.\n\n")
	}
	forward := in.After > 0
	kinds := ""
	if len(in.Kinds) > 0 {
		kinds = " with the same kinds"
	}
	if older := p.first; older > 1 && (forward || p.more) {
		fmt.Fprintf(&b, "Older events: read_session session=%s before=%d%s\n", info.ID, older, kinds)
	}
	switch {
	case p.damage != nil || info.Damage != nil:
		fmt.Fprintf(&b, "The session is damaged behind %s; what is before is sound.\n", cite(info.ID, p.last))
	case forward && p.more || !forward && in.Before > 0 && p.last > 0:
		fmt.Fprintf(&b, "Newer events: read_session session=%s after=%d%s\n", info.ID, p.last, kinds)
	default:
		fmt.Fprintf(&b, "This is the end of the session; what is added later: read_session session=%s after=%d\n", info.ID, max(p.last, hansard.Seq(in.After)))
	}
	return b.String()
}

// eventArgs ask for one event.
type eventArgs struct {
	Session  string `json:"session" jsonschema:"the session's id"`
	Seq      int64  `json:"seq" jsonschema:"the event's number in its session"`
	Offset   int    `json:"offset,omitempty" jsonschema:"where to begin in its text, in bytes"`
	MaxBytes int    `json:"max_bytes,omitempty" jsonschema:"how much text to return at most: 1024 to 65536, 16384 if it is left out"`
}

func (s *server) readEvent(ctx context.Context, _ *sdk.CallToolRequest, in eventArgs) (string, error) {
	most, err := limit("max_bytes", in.MaxBytes, defaultAnswer, maxAnswer)
	if err != nil {
		return "", err
	}
	if in.Seq < 1 || in.Offset < 0 {
		return "", errors.New("a seq is 1 or more, and an offset 0 or more")
	}
	id, seq := hansard.SessionID(in.Session), hansard.Seq(in.Seq)
	e, err := s.event(ctx, id, seq)
	if err != nil {
		return "", err
	}
	r := transcript.Of(e)
	whole := body(&r)
	if in.Offset > len(whole) {
		return "", fmt.Errorf("the text of %s has %d bytes", cite(id, seq), len(whole))
	}
	// If the offset is in the middle of a character, the rest of the character is dropped.
	part := cut(strings.ToValidUTF8(whole[in.Offset:], ""), max(most, leastAnswer))
	text := heading(id, &e, &r) + "\n" + indent(part)
	if end := len(whole) - in.Offset - len(part); end > 0 {
		text += fmt.Sprintf("\n… %d bytes more: read_event session=%s seq=%d offset=%d", end, id, seq, len(whole)-end)
	}
	return text, nil
}

// event is one event of a session.
func (s *server) event(ctx context.Context, id hansard.SessionID, seq hansard.Seq) (hansard.Event, error) {
	for e, err := range s.store.Read(ctx, id, hansard.Range{After: seq - 1, Before: seq + 1}) {
		return e, err
	}
	return hansard.Event{}, fmt.Errorf("%w: %s", hansard.ErrNoEvent, cite(id, seq))
}

// appendArgs leave a message.
type appendArgs struct {
	Session string `json:"session" jsonschema:"the session's id; it must exist"`
	Text    string `json:"text" jsonschema:"the message"`
	Key     string `json:"key,omitempty" jsonschema:"a name of your own for this message: however often it is sent, it is stored once"`
}

func (s *server) append(ctx context.Context, r *sdk.CallToolRequest, in appendArgs) (string, error) {
	switch {
	case strings.TrimSpace(in.Text) == "":
		return "", errors.New("the message is empty")
	case len(in.Text) > maxMessage:
		return "", fmt.Errorf("the message has %d bytes, and the most is %d", len(in.Text), maxMessage)
	}
	e := hansard.Message("user", strings.ToValidUTF8(in.Text, "\uFFFD"))
	e.Inbox, e.Author = true, clientName(r)
	b := hansard.Batch{Events: []hansard.Event{e}}
	if in.Key != "" {
		b.Key = "mcp:" + in.Key
	}
	receipt, err := s.store.Append(ctx, hansard.SessionID(in.Session), b)
	if err != nil {
		return "", err
	}
	if receipt.Replayed {
		return fmt.Sprintf("It is there already, as %s.", cite(receipt.Session, receipt.First)), nil
	}
	return fmt.Sprintf("Stored as %s, in the inbox.", cite(receipt.Session, receipt.First)), nil
}

// clientName is the name the client gives itself, for people.
func clientName(r *sdk.CallToolRequest) string {
	if r.Session == nil {
		return ""
	}
	p := r.Session.InitializeParams()
	if p == nil || p.ClientInfo == nil {
		return ""
	}
	return line(p.ClientInfo.Name, 60)
}
