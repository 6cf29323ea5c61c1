package durable

import (
	"context"
	"errors"
	"net/http"

	"hansard"
	"hansard/internal/wire"
)

// Create makes a stream, with the body as its first content. An existing stream with the
// same type, expiry and closedness is left as it is; any other is a conflict.
func (s *Streams) Create(w http.ResponseWriter, r *http.Request, id hansard.SessionID, body []byte) error {
	if IsFork(r) {
		return s.createFork(w, r, id, body)
	}
	if r.Header.Get(headerForkOffset) != "" || r.Header.Get(headerForkSub) != "" {
		return malformed("%s and %s are for %s", headerForkOffset, headerForkSub, headerFork)
	}
	asked, err := askedConfig(r.Header)
	if err != nil {
		return err
	}
	ctx := context.WithoutCancel(r.Context())
	hidden := false // the name is taken, by a session that the caller can't see
	for range maxTries {
		c, info, err := s.find(ctx, id)
		missing := errors.Is(err, hansard.ErrNotFound)
		switch {
		case missing:
			c, info, err = s.begin(ctx, id, asked, body)
		case errors.Is(err, hansard.ErrDeleted) && !s.hasForks(ctx, id):
			if err = s.reuse(ctx, id); err == nil {
				continue // it was created, and is unfinished
			}
		case err == nil && c.Unfinished && c.Forked == nil:
			c, info, err = s.finish(ctx, c, info, asked, body)
			missing = true
		case err == nil && s.expired(c, info):
			c, info, err = s.beginAgain(ctx, c, info, asked, body)
			missing = true
		case err == nil && !c.same(asked):
			c.ends(w.Header(), info)
			return refused("there is a stream of another type, expiry or closedness")
		}
		if errors.Is(err, hansard.ErrConflict) || errors.Is(err, hansard.ErrExists) {
			hidden = missing && errors.Is(err, hansard.ErrExists)
			continue // another request was first
		}
		if errors.Is(err, hansard.ErrDeleted) {
			return wire.NewProblem("stream-conflict", "the stream was deleted, and its name can't be used again: it has forks, or may have been out of your reach", "use another name")
		}
		if err != nil {
			return told(err)
		}
		h := w.Header()
		c.describe(h)
		c.ends(h, info)
		if !missing {
			w.WriteHeader(http.StatusOK)
			return nil
		}
		h.Set("Location", location(r))
		w.WriteHeader(http.StatusCreated)
		return nil
	}
	if hidden {
		return nameTaken()
	}
	return tooBusy()
}

func location(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + r.URL.EscapedPath()
}

// begin makes a session with the first content of the stream, in one commit.
func (s *Streams) begin(ctx context.Context, id hansard.SessionID, asked *config, body []byte) (*config, *hansard.Info, error) {
	c := *asked
	events, err := c.events(body, true)
	if err != nil {
		return nil, nil, err
	}
	if c.Closed != nil {
		c.Closed.Tail = hansard.Seq(len(events))
	}
	durable := wire.Marshal(&c)
	meta := hansard.Meta{State: wire.Marshal(map[string]any{"durable": &c})}
	if len(events) == 0 {
		info, err := s.store.Create(ctx, id, meta)
		return &c, &info, err
	}
	receipt, err := s.store.Append(ctx, id, hansard.Batch{
		Events: events, Create: true, Meta: meta, Expect: hansard.At(0),
		// Tests that the append created the session: one that others created since
		// has another state.
		Patch: &hansard.Patch{StateOps: []hansard.StateOp{{Op: hansard.OpTest, Path: pathDurable, Value: durable}}},
	})
	return &c, &hansard.Info{ID: id, LastSeq: receipt.Last}, err
}

// reuse makes a new session under a deleted name. The content of the stream takes a second
// commit; until then the stream does not exist for clients, and the next request to create it
// finishes it.
func (s *Streams) reuse(ctx context.Context, id hansard.SessionID) error {
	state := wire.Marshal(map[string]any{"durable": &config{Unfinished: true}})
	_, err := s.store.Create(ctx, id, hansard.Meta{State: state, Reuse: true})
	return err
}

// finish completes an unfinished stream as the request asks for it.
func (s *Streams) finish(ctx context.Context, old *config, info *hansard.Info, asked *config, body []byte) (*config, *hansard.Info, error) {
	events, err := asked.events(body, true)
	if err != nil {
		return nil, nil, err
	}
	if err := s.complete(ctx, info, old, asked, events); err != nil {
		return nil, nil, err
	}
	return s.find(ctx, info.ID)
}

// beginAgain makes a stream in place of one that has expired: after it, in the same session,
// which keeps everything that was in it.
func (s *Streams) beginAgain(ctx context.Context, old *config, info *hansard.Info, asked *config, body []byte) (*config, *hansard.Info, error) {
	c := *asked
	events, err := c.events(body, true)
	if err != nil {
		return nil, nil, err
	}
	c.Start = info.LastSeq
	if len(events) == 0 {
		c.Start++ // the event of the change itself
	}
	if c.Closed != nil {
		c.Closed.Tail = max(c.Start, info.LastSeq+hansard.Seq(len(events)))
	}
	change, err := old.change()
	if err != nil {
		return nil, nil, err
	}
	change.set(hansard.OpReplace, pathDurable, &c)
	receipt, err := s.store.Append(ctx, info.ID, hansard.Batch{Events: events, Patch: change.patch(), Expect: hansard.At(info.LastSeq)})
	return &c, &hansard.Info{ID: info.ID, LastSeq: receipt.Last}, err
}

// nameTaken refuses a name that is taken although there is no such session for the caller.
func nameTaken() error {
	return wire.NewProblem("stream-conflict", "the name is taken by a session that is out of your reach", "use another name")
}

func tooBusy() error {
	p := wire.NewProblem("overloaded", "others wrote to the stream on every try; nothing was stored", "try again")
	p.RetryAfter = 1
	return p
}
