package httpd

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
)

func sessionID(r *http.Request) hansard.SessionID { return hansard.SessionID(r.PathValue("id")) }

// describe is a session as clients see it.
func describe(i hansard.Info) wire.Session {
	i.Damage = wire.ScrubDamage(i.Damage)
	i.Unreadable = wire.Scrub(i.Unreadable)
	return wire.NewSession(i)
}

// listSessions answers with a page of sessions, newest first, or with their number.
func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "limit", "cursor", "order", "prefix", "id", "parent", "label", "q", "since", "before", "created_since", "created_before",
		"held", "damaged", "archived", "count", "preview")
	q := p.query()
	limit := p.limit(defaultPageLength, maxPageSessions)
	preview, counted := p.flag("preview"), p.flag("count")
	if counted && (preview || p.has("limit") || p.has("cursor")) {
		p.fail("count", "all that match are counted: it goes with none of limit, cursor and preview")
	}
	if p.err != nil {
		return p.err
	}
	if counted {
		return s.countSessions(w, r, q)
	}
	if wantsLines(r) {
		q.Limit = p.count("limit", 0, math.MaxInt32)
		if preview {
			return &hansard.InvalidError{Field: "preview", Reason: "it is for pages; whole lists have none"}
		}
		return s.listLines(w, r, q)
	}
	q.Limit = limit + 2 // one more shows whether there are more, and one may be the server's own
	return s.writeSessions(w, r, q, limit, preview)
}

// query is the query that the parameters describe.
func (p *params) query() hansard.Query {
	q := hansard.Query{Cursor: p.text("cursor"), Prefix: p.text("prefix"), Parent: hansard.SessionID(p.text("parent")), Text: p.text("q"), Labels: p.labels(),
		Since: p.time("since"), Before: p.time("before"), CreatedSince: p.time("created_since"), CreatedBefore: p.time("created_before"),
		Held: p.flag("held"), Damaged: p.flag("damaged")}
	for _, id := range p.values["id"] {
		q.IDs = append(q.IDs, hansard.SessionID(id))
	}
	switch p.text("order") {
	case "", "updated":
	case "created":
		q.Order = hansard.OrderCreated
	default:
		p.fail("order", "it is neither updated nor created")
	}
	switch p.text("archived") {
	case "", "any":
	case "no":
		q.Archived = hansard.ArchivedNo
	case "only":
		q.Archived = hansard.ArchivedOnly
	default:
		p.fail("archived", "it has to be one of: any, no, only")
	}
	return q
}

// countSessions answers how many sessions match.
func (s *Server) countSessions(w http.ResponseWriter, r *http.Request, q hansard.Query) error {
	n, err := hansard.Count(r.Context(), s.store, q)
	if err == nil && (len(q.IDs) == 0 || slices.Contains(q.IDs, ReadySession)) {
		own := q // the server's own session, which lists leave out
		own.IDs = []hansard.SessionID{ReadySession}
		var ours int
		ours, err = hansard.Count(r.Context(), s.store, own)
		n -= ours
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Count{Count: max(n, 0)})
}

// writeSessions answers with one page of a list. Sessions may have a state of 1 MiB
// each: a page also ends before it gets too large.
func (s *Server) writeSessions(w http.ResponseWriter, r *http.Request, q hansard.Query, limit int, preview bool) error {
	room := s.memory.load(callerOf(r.Context()).Name)
	defer room.free()
	body, last, n, more := []byte(`{"sessions":[`), "", 0, false
	previewing := previewPageBytes
	reading := s.room(r.Context()) // for the previews
	defer reading.free()
	for info, err := range s.store.List(r.Context(), q) {
		if err != nil {
			return err
		}
		if info.ID == ReadySession {
			continue
		}
		if more = n == limit || n > 0 && len(body)+len(info.State) > maxPageBytes; more {
			break
		}
		fits, err := room.fit(r.Context(), n == 0, len(info.State)+1024)
		if err != nil {
			return err
		}
		if more = !fits; more {
			break
		}
		if n++; n > 1 {
			body = append(body, ',')
		}
		session := describe(info)
		if preview {
			session.Preview = s.previews.of(r.Context(), s.store, reading, &info, &previewing)
		}
		body, last = append(body, wire.Marshal(session)...), session.Cursor
	}
	body = append(body, ']')
	if more && n > 0 {
		body = append(append(body, `,"next":`...), wire.Marshal(last)...)
	}
	return writeBytes(w, http.StatusOK, append(body, '}', '\n'))
}

// listLines answers with a whole list, one session per line: no session can be missed
// because it was updated between two pages.
func (s *Server) listLines(w http.ResponseWriter, r *http.Request, q hansard.Query) error {
	limit := q.Limit
	if limit > 0 {
		q.Limit++ // one may be the server's own
	}
	out := newLines(w)
	n := 0
	for info, err := range s.store.List(r.Context(), q) {
		if err != nil {
			if err := s.endLines(out, r, err); err != nil {
				return err
			}
			break
		}
		if info.ID == ReadySession {
			continue
		}
		if n++; limit > 0 && n > limit {
			break
		}
		if err := out.line(wire.Marshal(describe(info))); err != nil {
			return err
		}
	}
	return out.flush()
}

// createSession makes a session, with a new id if none is given.
func (s *Server) createSession(w http.ResponseWriter, r *http.Request) error {
	var given struct {
		ID *hansard.SessionID `json:"id"`
		hansard.Meta
	}
	if err := s.decode(w, r, &given); err != nil {
		return err
	}
	if given.ID == nil && r.Header.Get(wire.KeyHeader) != "" {
		// A key is stored with an append, and this is not one: a retry would make a
		// second session.
		return &hansard.InvalidError{Field: wire.KeyHeader, Reason: "creating a session takes no key; give it an id, and a retry answers that it exists"}
	}
	if given.ID == nil {
		id := callerOf(r.Context()).newID(engine.NewID())
		given.ID = &id
	}
	info, err := s.store.Create(writing(r), *given.ID, given.Meta)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/sessions/"+string(info.ID))
	return answerSession(w, http.StatusCreated, info)
}

func answerSession(w http.ResponseWriter, status int, info hansard.Info) error {
	w.Header().Set("ETag", tagOf(&info))
	return writeJSON(w, status, describe(info))
}

// tagOf is the entity tag of a session's description: its last seq, and a hash of the turn
// or damage if it has any, since these may change without a new seq.
func tagOf(info *hansard.Info) string {
	if info.Turn == nil && info.Damage == nil && info.Unreadable == "" {
		return tagAt(info, info.LastSeq)
	}
	return markedTag(info.LastSeq, describe(*info))
}

// markedTag is the tag of a last seq with a hash of everything in told.
func markedTag(seq hansard.Seq, told any) string {
	sum := sha256.Sum256(wire.Marshal(told))
	return `"` + strconv.FormatUint(uint64(seq), 10) + "." + hex.EncodeToString(sum[:6]) + `"`
}

// tagAt is the entity tag of a session's content up to a seq. It has the time at which the
// session was created as well: a new session under the id of a deleted one begins at seq 1
// again.
func tagAt(info *hansard.Info, last hansard.Seq) string {
	return `"` + strconv.FormatUint(uint64(last), 10) + "." + strconv.FormatInt(info.Created.UnixMicro(), 36) + `"`
}

// etag is a last seq as an entity tag, in answers to writes.
func etag(seq hansard.Seq) string { return `"` + strconv.FormatUint(uint64(seq), 10) + `"` }

func (s *Server) getSession(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "preview")
	preview := p.flag("preview")
	if p.err != nil {
		return p.err
	}
	info, err := s.store.Stat(r.Context(), sessionID(r))
	if err != nil {
		return err
	}
	if !preview {
		return answerSession(w, http.StatusOK, info)
	}
	session := describe(info)
	left := previewPageBytes
	reading := s.room(r.Context())
	defer reading.free()
	session.Preview = s.previews.of(r.Context(), s.store, reading, &info, &left)
	w.Header().Set("ETag", markedTag(info.LastSeq, session))
	return writeJSON(w, http.StatusOK, session)
}

// patchSession changes metadata and state, as a batch of only a patch.
func (s *Server) patchSession(w http.ResponseWriter, r *http.Request) error {
	var given struct {
		hansard.Patch
		Turn   hansard.Grant `json:"turn"`
		Expect *hansard.Seq  `json:"expect"`
		Key    string        `json:"key"`
	}
	if err := s.decode(w, r, &given); err != nil {
		return err
	}
	id := sessionID(r)
	b := hansard.Batch{Patch: &given.Patch, Turn: given.Turn, Expect: given.Expect, Key: given.Key}
	if err := conditions(r, &b); err != nil {
		return err
	}
	receipt, err := s.append(writing(r), id, b)
	if err != nil {
		return err
	}
	info, err := s.store.Stat(r.Context(), id)
	if err != nil {
		// The patch is stored. The next request will show what happened to the session since.
		info = hansard.Info{ID: id, LastSeq: receipt.Last}
	}
	if !callerOf(r.Context()).Rights.allows(Read) {
		w.Header().Set("ETag", etag(receipt.Last))
		return writeJSON(w, http.StatusOK, written{id, receipt.Last})
	}
	return answerSession(w, http.StatusOK, info)
}

// written is the answer to a change of a session for a caller that may not read.
type written struct {
	ID      hansard.SessionID `json:"id"`
	LastSeq hansard.Seq       `json:"last_seq"`
}

// deleteSession ends a session. Its last seq can't be a condition: events appended in
// the meantime could not be told apart from those that were there.
func (s *Server) deleteSession(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "turn")
	grant := p.text("turn")
	if r.Header.Get("If-Match") != "" {
		p.fail("If-Match", "a deletion has no such condition; take an exclusive turn")
	}
	if p.err != nil {
		return p.err
	}
	if err := s.store.Delete(writing(r), sessionID(r), hansard.Grant(grant)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// conditions adds the conditions in the headers of a request to a batch.
func conditions(r *http.Request, b *hansard.Batch) error {
	if match := r.Header.Values("If-Match"); len(match) > 0 {
		seq, err := parseETag(strings.Join(match, ","))
		if err != nil {
			return err
		}
		if b.Expect != nil && seq != nil && *b.Expect != *seq {
			return &hansard.InvalidError{Field: "If-Match", Reason: "it is another seq than the body expects"}
		}
		if seq != nil {
			b.Expect = seq
		} else {
			b.Create = false // "any" is one that is there
		}
	}
	keys := r.Header.Values(wire.KeyHeader)
	if len(keys) == 0 {
		return nil
	}
	key, err := wire.ParseKey(keys)
	if err != nil {
		return err
	}
	if b.Key != "" && b.Key != key {
		return &hansard.InvalidError{Field: wire.KeyHeader, Reason: "it is another key than that of the body"}
	}
	b.Key = key
	return nil
}

// parseETag reads an If-Match: one seq in quotes, or * for any, which is nil.
func parseETag(match string) (*hansard.Seq, error) {
	match = strings.TrimSpace(match)
	if match == "*" {
		return nil, nil
	}
	inner, ok := strings.CutPrefix(match, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	inner, _, _ = strings.Cut(inner, ".") // drop what tells apart other contents with this last seq
	seq, err := strconv.ParseUint(inner, 10, 64)
	if !ok || !closed || err != nil {
		return nil, &hansard.InvalidError{Field: "If-Match", Reason: `it is not the seq of an ETag, such as "7"`}
	}
	return hansard.At(hansard.Seq(seq)), nil
}
