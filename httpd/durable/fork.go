package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"hansard"
	"hansard/internal/wire"
)

// origin is the stream that another one is a fork of.
type origin struct {
	From hansard.SessionID `json:"from"`
	At   hansard.Seq       `json:"at"`
	// Sub is how many messages, or bytes, after that it also has.
	Sub int64 `json:"sub,omitempty"`
}

// fork is a request to make a fork of a stream.
type fork struct {
	from   hansard.SessionID
	offset string // empty: the end of the stream
	sub    int64
}

// IsFork reports whether a request creates a fork of another stream, and thereby reads it.
func IsFork(r *http.Request) bool { return r.Header.Get(headerFork) != "" }

func parseFork(h http.Header) (*fork, error) {
	path := h.Get(headerFork)
	if u, err := url.Parse(path); err == nil {
		path = u.Path
	}
	name, ok := strings.CutPrefix(path, Prefix)
	if !ok || hansard.CheckID(hansard.SessionID(name)) != nil {
		return nil, malformed("%s %.80q is not the path of a stream of this server", headerFork, path)
	}
	f := &fork{from: hansard.SessionID(name), offset: h.Get(headerForkOffset)}
	if text := h.Get(headerForkSub); text != "" || h.Values(headerForkSub) != nil {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || !plainNumber.MatchString(text) || n > longestSafe {
			return nil, malformed("the %s %.40q is not a number", headerForkSub, text)
		}
		f.sub = n
	}
	return f, nil
}

// createFork makes a fork of a stream: a session that has the other's events up to the
// offset. It has its own producers, and is open.
func (s *Streams) createFork(w http.ResponseWriter, r *http.Request, id hansard.SessionID, body []byte) error {
	f, err := parseFork(r.Header)
	if err != nil {
		return err
	}
	asked, err := askedConfig(r.Header)
	if err != nil {
		return err
	}
	ctx := context.WithoutCancel(r.Context())
	source, info, err := s.find(ctx, f.from)
	switch {
	case errors.Is(err, hansard.ErrDeleted) && s.hasForks(ctx, f.from):
		return refused("the stream %s was deleted", f.from)
	case err != nil:
		return s.told(ctx, f.from, err)
	case s.expired(source, info):
		return told(fmt.Errorf("%w: stream %s has expired", hansard.ErrNotFound, f.from))
	}
	if r.Header.Get(headerType) == "" {
		asked.Type = source.Type
	} else if !sameType(asked.Type, source.Type) {
		return refused("the stream %s is of the type %s", f.from, source.Type)
	}
	if asked.TTL == nil && asked.Expires == nil {
		asked.TTL, asked.Expires = source.TTL, source.Expires
	}
	at, err := f.at(source, info)
	if err != nil {
		return err
	}
	asked.Forked, asked.Start = &origin{f.from, at, f.sub}, source.Start
	c, there, made, err := s.makeFork(ctx, id, source, info, asked, body)
	if err != nil {
		return s.told(ctx, id, err)
	}
	c.describe(w.Header())
	c.ends(w.Header(), there)
	if !made {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	w.Header().Set("Location", location(r))
	w.WriteHeader(http.StatusCreated)
	return nil
}

// at is where a stream is to be forked.
func (f *fork) at(source *config, info *hansard.Info) (hansard.Seq, error) {
	tail := source.tail(info)
	switch f.offset {
	case "", offsetNow:
		return tail, nil
	case offsetStart:
		return source.Start, nil
	}
	at, err := parseOffset(f.offset)
	if err != nil {
		return 0, err
	}
	if at > tail {
		return 0, malformed("the stream %s ends before the offset %s", f.from, f.offset)
	}
	return max(at, source.Start), nil
}

// makeFork makes the session, or finds that it exists. What a fork has besides the history
// takes a second commit; until then the stream does not exist for clients, and the next
// request to create it finishes it.
func (s *Streams) makeFork(ctx context.Context, id hansard.SessionID, source *config, parent *hansard.Info, asked *config, body []byte) (c *config, there *hansard.Info, made bool, err error) {
	events, err := asked.events(body, true)
	if err != nil {
		return nil, nil, false, err
	}
	if asked.Forked.Sub > 0 {
		room := s.opt.Room(ctx)
		defer room.Free()
		beyond, err := s.beyond(ctx, room, source, parent.ID, asked.Forked)
		if err != nil {
			return nil, nil, false, err
		}
		events = append(beyond, events...)
	}
	hidden := false // as in Create
	for range maxTries {
		c, there, err = s.find(ctx, id)
		missing := errors.Is(err, hansard.ErrNotFound)
		switch {
		case missing:
			first := *asked
			first.Closed, first.Unfinished = nil, len(events) > 0 || asked.Closed != nil
			if err = s.beginFork(ctx, id, parent, &first); err == nil {
				made = true
				continue
			}
		case err == nil && c.Unfinished && c.Forked != nil && *c.Forked == *asked.Forked:
			if err = s.complete(ctx, there, c, asked, events); err == nil {
				made = true
				continue
			}
		case err == nil && c.same(asked):
			return c, there, made, nil
		case err == nil:
			return nil, nil, false, refused("there is a stream of another type, expiry, closedness or origin")
		case errors.Is(err, hansard.ErrDeleted):
			return nil, nil, false, refused("the stream was deleted, and a fork does not use its name again")
		}
		if !errors.Is(err, hansard.ErrConflict) && !errors.Is(err, hansard.ErrExists) {
			return nil, nil, false, err
		}
		hidden = missing && errors.Is(err, hansard.ErrExists)
	}
	if hidden {
		return nil, nil, false, nameTaken()
	}
	return nil, nil, false, tooBusy()
}

// complete adds the first content and settings of a stream, besides its history.
func (s *Streams) complete(ctx context.Context, info *hansard.Info, c, asked *config, events []hansard.Event) error {
	last := *asked
	if last.Closed != nil {
		last.Closed = &closing{Tail: c.tail(info)}
		if len(events) > 0 {
			last.Closed.Tail = info.LastSeq + hansard.Seq(len(events))
		}
	}
	ch, err := c.change()
	if err != nil {
		return err
	}
	ch.set(hansard.OpReplace, pathDurable, &last)
	_, err = s.store.Append(ctx, info.ID, hansard.Batch{Events: events, Patch: ch.patch(), Expect: hansard.At(info.LastSeq)})
	return err
}

// beginFork makes the session of a fork. Before the first event there is nothing to fork:
// then it is a new session.
func (s *Streams) beginFork(ctx context.Context, id hansard.SessionID, parent *hansard.Info, c *config) error {
	state, err := withDurable(parent.State, c)
	if err != nil {
		return err
	}
	meta := hansard.Meta{State: state}
	if c.Forked.At == 0 {
		_, err = s.store.Create(ctx, id, meta)
		return err
	}
	_, err = s.store.Fork(ctx, parent.ID, hansard.Fork{At: c.Forked.At, As: id, Meta: meta})
	return err
}

// withDurable returns a state with another config in it.
func withDurable(state json.RawMessage, c *config) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if len(state) > 0 && json.Unmarshal(state, &members) != nil {
		return nil, refused("the session's state is not an object, so there is no place for what a stream has")
	}
	if members == nil {
		members = map[string]json.RawMessage{}
	}
	members["durable"] = wire.Marshal(c)
	return wire.Marshal(members), nil
}

// beyond returns what a sub-offset adds: that many messages, or bytes of the next chunk. It is
// appended as one batch, so no more is read than one may have.
func (s *Streams) beyond(ctx context.Context, room Room, c *config, id hansard.SessionID, o *origin) (out []hansard.Event, err error) {
	if c.json() && o.Sub > hansard.MaxBatchEvents {
		return nil, malformed("the %s is larger than a request may have messages", headerForkSub)
	}
	rd := &reading{id: id, c: c}
	rng := hansard.Range{After: o.At}
	if c.Closed != nil {
		rng.Before = c.Closed.Tail + 1
	}
	if err := room.Read(ctx); err != nil {
		return nil, err
	}
	defer room.Rest()
	size := 0
	for e, err := range s.store.Read(ctx, id, rng) {
		if err != nil {
			return nil, err
		}
		content, ok := rd.content(&e)
		if !ok {
			continue
		}
		if size += len(content); size > hansard.MaxBatchBytes {
			return nil, &hansard.InvalidError{Field: headerForkSub, TooLarge: true, Reason: "what it adds is larger than one request may append"}
		}
		if _, err := room.Fit(ctx, true, 2*len(content)); err != nil {
			return nil, err
		}
		switch {
		case !c.json():
			if o.Sub > int64(len(content)) {
				return nil, malformed("the %s is past the end of what was appended there", headerForkSub)
			}
			return []hansard.Event{{Kind: kindChunk, Data: encodeChunk(content[:o.Sub])}}, nil
		default:
			if out = append(out, hansard.Event{Kind: e.Kind, Role: e.Role, Author: e.Author, Data: content}); int64(len(out)) == o.Sub {
				return out, nil
			}
		}
	}
	return nil, malformed("the %s is past the end of the stream", headerForkSub)
}

// hasForks reports whether a session has forks that still exist.
func (s *Streams) hasForks(ctx context.Context, id hansard.SessionID) bool {
	for _, err := range s.store.List(ctx, hansard.Query{Parent: id, Limit: 1}) {
		return err == nil
	}
	return false
}

// told is the function told, but answers 410 for a deleted stream that has forks: its
// content lives on in them.
func (s *Streams) told(ctx context.Context, id hansard.SessionID, err error) error {
	if errors.Is(err, hansard.ErrDeleted) && s.hasForks(ctx, id) {
		return wire.ProblemOf(err)
	}
	return told(err)
}
