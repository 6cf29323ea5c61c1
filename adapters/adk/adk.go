// Package adk keeps the sessions of Google's Agent Development Kit in any [hansard.Store].
//
//	runner.New(runner.Config{AppName: "app", Agent: agent, SessionService: adk.New(store)})
//
// An ADK session is a session of the store, adk:APP:USER:SESSION, and an ADK event is an event of
// kind "adk" with its JSON as data, committed with the changes it makes to the session's state.
// The state of an app and of a user is that of the sessions adk-shared:APP and adk-shared:APP:USER.
// An event that changes it says so in its own commit ("owed"); it is applied there once, by its
// writer, or if that was killed by the next one that appends to the session, to what nobody set since.
package adk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"hansard"
)

const kind = "adk"

type service struct{ store hansard.Store }

// New makes a session service of a store, which stays its caller's to close.
func New(store hansard.Store) session.Service { return service{store} }

type turn struct{}

// UnderTurn gives a context in which sessions are written under a grant of their turn: once that
// is lost it is refused, with [hansard.ErrFenced].
func UnderTurn(ctx context.Context, g hansard.Grant) context.Context {
	return context.WithValue(ctx, turn{}, g)
}

func (s service) Create(ctx context.Context, req *session.CreateRequest) (*session.CreateResponse, error) {
	n := names{req.AppName, req.UserID, req.SessionID}
	if n.Session == "" {
		n.Session = platform.NewUUID(ctx)
	}
	if n.App == "" || n.User == "" {
		return nil, fmt.Errorf("app_name and user_id are required, got %q and %q", n.App, n.User)
	}
	d := document{names: n, Nonce: platform.NewUUID(ctx)}
	d.State, d.Owed = split(req.State, d.key(""))
	info, err := s.create(ctx, n.id("adk"), d)
	if err == nil {
		err = s.settle(ctx, n, d.Owed, time.Time{})
	}
	if err != nil {
		return nil, fmt.Errorf("create session %q: %w", n.Session, err)
	}
	made, err := s.open(ctx, info, nil, states{})
	return &session.CreateResponse{Session: made}, err
}

func (s service) create(ctx context.Context, id hansard.SessionID, d document) (hansard.Info, error) {
	state, err := json.Marshal(d)
	if err != nil {
		return hansard.Info{}, err
	}
	labels := map[string]string{"adk_app": fitting(d.App), "adk_user": fitting(d.User), "adk_session": fitting(d.Session)}
	maps.DeleteFunc(labels, func(_, text string) bool { return text == "" })
	return s.store.Create(ctx, id, hansard.Meta{Labels: labels, State: state, Reuse: true})
}

func (s service) Get(ctx context.Context, req *session.GetRequest) (*session.GetResponse, error) {
	n := names{req.AppName, req.UserID, req.SessionID}
	info, err := s.store.Stat(ctx, n.id("adk"))
	if err != nil {
		return nil, fmt.Errorf("session %q: %w", n.Session, err)
	}
	var events []*session.Event
	r := hansard.Range{Before: info.LastSeq + 1, Kinds: []string{kind}, Reverse: true, Limit: max(req.NumRecentEvents, 0)}
	for e, err := range s.store.Read(ctx, info.ID, r) {
		event := &session.Event{ID: e.ID, Author: e.Author, Timestamp: e.At} // all there is of a redacted one
		if err == nil {
			err = json.Unmarshal(e.Data, event)
		}
		if err != nil {
			return nil, fmt.Errorf("session %q: %w", n.Session, err)
		}
		if event.Timestamp.Before(req.After) {
			break // and so are those before it
		}
		events = append(events, event)
	}
	slices.Reverse(events)
	got, err := s.open(ctx, info, events, states{})
	return &session.GetResponse{Session: got}, err
}

func (s service) List(ctx context.Context, req *session.ListRequest) (*session.ListResponse, error) {
	if req.AppName == "" {
		return nil, errors.New("app_name is required")
	}
	out, known := []session.Session{}, states{}
	for info, err := range s.store.List(ctx, hansard.Query{Prefix: string(names{req.AppName, req.UserID, ""}.id("adk")) + ":"}) {
		if err != nil {
			return nil, err
		}
		sess, err := s.open(ctx, info, nil, known)
		if err == nil {
			out = append(out, sess)
		} else if !errors.Is(err, errForeign) { // nor does one that can't be read hide the others
			return nil, err
		}
	}
	return &session.ListResponse{Sessions: out}, nil
}

func (s service) Delete(ctx context.Context, req *session.DeleteRequest) error {
	n := names{req.AppName, req.UserID, req.SessionID}
	g, _ := ctx.Value(turn{}).(hansard.Grant)
	if err := s.store.Delete(ctx, n.id("adk"), g); err != nil && !missing(err) {
		return fmt.Errorf("delete session %q: %w", n.Session, err)
	}
	return nil
}

// AppendEvent stores an event with what it changes. It is [hansard.ErrConflict] if the session changed since it was
// got. After another error the same event may be appended again, and is stored once.
func (s service) AppendEvent(ctx context.Context, to session.Session, event *session.Event) error {
	sess, ok := to.(*stored)
	if !ok || event == nil {
		return fmt.Errorf("append %T to %T: it takes an event, and a session of this service", event, to)
	}
	if event.Partial {
		return nil
	}
	sess.writing.Lock()
	defer sess.writing.Unlock()
	if event.ID == "" {
		event.ID = platform.NewUUID(ctx)
	}
	b, own, err := sess.batch(event)
	if err != nil {
		return err
	}
	// What is owed comes first. What can never be paid was never accepted, and is in nobody's way.
	if err := s.settleLate(ctx, sess); err != nil && !errors.Is(err, hansard.ErrInvalid) {
		return err
	}
	if sess.doc.Owed != nil && sess.doc.Owed.Key == b.Key {
		return nil // it was stored before, and is settled now
	}
	b.Turn, _ = ctx.Value(turn{}).(hansard.Grant)
	receipt, err := s.append(ctx, sess, b)
	if err != nil {
		return fmt.Errorf("append to session %q: %w", sess.doc.Session, err)
	}
	sess.seq, sess.doc.Owed = receipt.Last, own
	err = s.settle(ctx, sess.doc.names, own, time.Time{})
	sess.paid = err == nil
	if err := errors.Join(sess.local.AppendEvent(ctx, sess.Session, event), err); err != nil {
		return fmt.Errorf("session %q: the event is stored, but not what it changes for others: %w", sess.doc.Session, err)
	}
	return nil
}

// append stores a batch if the session is as it was got, except for turns, and for what others left in it.
func (s service) append(ctx context.Context, sess *stored, b hansard.Batch) (hansard.Receipt, error) {
	for seq, id := sess.seq, sess.doc.id("adk"); ; {
		b.Expect = &seq
		receipt, err := s.store.Append(ctx, id, b)
		var conflict *hansard.ConflictError
		if !errors.As(err, &conflict) || conflict.Actual <= seq {
			return receipt, err
		}
		for e, failed := range s.store.Read(ctx, id, hansard.Range{After: seq, Before: conflict.Actual + 1}) {
			if failed != nil {
				return receipt, failed
			}
			if e.Kind == kind || len(e.Redacts) > 0 || e.Patch != nil && (e.Patch.State != nil || e.Patch.StateOps != nil) {
				return receipt, fmt.Errorf("it is stale, get it again: %w", err)
			}
		}
		seq = conflict.Actual
	}
}

// settleLate applies what is owed since the newest event of a session, or since there is one, perhaps for long.
func (s service) settleLate(ctx context.Context, sess *stored) error {
	if sess.doc.Owed == nil || sess.paid {
		return nil
	}
	since := sess.created
	for e, err := range s.store.Read(ctx, sess.doc.id("adk"), hansard.Range{Before: sess.seq + 1, Kinds: []string{kind}, Reverse: true, Limit: 1}) {
		if err != nil {
			return err
		}
		since = e.Time
	}
	return s.settle(ctx, sess.doc.names, sess.doc.Owed, since)
}

// settle applies what is owed to the app and to the user, except for what others set after a time.
func (s service) settle(ctx context.Context, n names, o *owed, since time.Time) error {
	if o == nil {
		return nil
	}
	return errors.Join(s.change(ctx, names{App: n.App}, o.App, o.Key, since), s.change(ctx, names{App: n.App, User: n.User}, o.User, o.Key, since))
}

func (s service) change(ctx context.Context, n names, delta map[string]any, key string, since time.Time) error {
	ops, err := opsOf(delta)
	for err == nil && len(ops) > 0 {
		b := hansard.Batch{Patch: &hansard.Patch{StateOps: ops}, Key: key}
		if !since.IsZero() {
			if b.Expect, b.Patch.StateOps, err = s.unset(ctx, n.id("adk-shared"), ops, since); err != nil || len(b.Patch.StateOps) == 0 {
				return err
			}
		}
		_, err = s.store.Append(ctx, n.id("adk-shared"), b)
		var conflict *hansard.ConflictError
		switch {
		case errors.Is(err, hansard.ErrKeyReused):
			return nil // it is paid, with other values left out
		case b.Expect != nil && errors.As(err, &conflict) && conflict.Actual > *b.Expect:
			err = nil
			continue
		case !missing(err):
			return err
		}
		if _, err = s.create(ctx, n.id("adk-shared"), document{names: n, State: map[string]any{}}); errors.Is(err, hansard.ErrExists) {
			err = nil
		}
	}
	return err
}

// unset gives the operations whose values nobody set after a time, and the seq up to which it looked.
func (s service) unset(ctx context.Context, id hansard.SessionID, ops []hansard.StateOp, since time.Time) (*hansard.Seq, []hansard.StateOp, error) {
	info, err := s.store.Stat(ctx, id)
	if missing(err) {
		return nil, ops, nil
	}
	set := map[string]bool{}
	for e, failed := range s.store.Read(ctx, id, hansard.Range{Before: info.LastSeq + 1, Reverse: true}) {
		if err = errors.Join(err, failed); err != nil || !e.Time.After(since) {
			break
		}
		if e.Patch != nil {
			for _, op := range e.Patch.StateOps {
				set[op.Path] = true
			}
		}
	}
	left := slices.DeleteFunc(slices.Clone(ops), func(op hansard.StateOp) bool { return set[op.Path] })
	return &info.LastSeq, left, err
}

func missing(err error) bool {
	return errors.Is(err, hansard.ErrNotFound) || errors.Is(err, hansard.ErrDeleted)
}
