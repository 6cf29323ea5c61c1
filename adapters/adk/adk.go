// Package adk keeps the sessions of Google's Agent Development Kit in any [hansard.Store].
//
//	runner.New(runner.Config{AppName: "app", Agent: agent, SessionService: adk.New(store)})
//
// An ADK session is a session of the store, adk:APP:USER:SESSION, and an ADK event is an event of
// kind "adk" with its JSON as data, committed with all that it sets in the state. What it sets for
// the app or the user is then set in adk-shared:APP or adk-shared:APP:USER, and takes effect only
// there. The event's writer does that, once; if the writer was killed, the next one that appends
// to the session does, and leaves alone what others have set since.
package adk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"hansard"
)

// What the ids of sessions begin with. An event of the ADK has the first as its kind.
const kind, shared = "adk", "adk-shared"

type service struct{ store hansard.Store }

// New makes a session service of a store, which the caller still has to close.
func New(store hansard.Store) session.Service { return service{store} }

type turn struct{}

// UnderTurn returns a context in which sessions are written under a grant of their turn: once
// the turn is lost, writes are refused with [hansard.ErrFenced].
func UnderTurn(ctx context.Context, g hansard.Grant) context.Context {
	return context.WithValue(ctx, turn{}, g)
}

func (s service) Create(ctx context.Context, req *session.CreateRequest) (*session.CreateResponse, error) {
	n := names{req.AppName, req.UserID, cmp.Or(req.SessionID, platform.NewUUID(ctx))}
	d := document{names: n, Nonce: platform.NewUUID(ctx), State: map[string]any{}}
	maps.Copy(d.State, req.State)
	maps.DeleteFunc(d.State, temporary)
	if d.App == "" || d.User == "" {
		return nil, fmt.Errorf("app_name and user_id are required, got %q and %q", d.App, d.User)
	}
	info, err := s.create(ctx, d.id(kind), d)
	if err == nil {
		err = s.share(ctx, d, opsOf(d.State), d.key(""), time.Time{})
	}
	if err != nil {
		return nil, err
	}
	made, err := s.open(ctx, info, nil, states{})
	return &session.CreateResponse{Session: made}, err
}

func (s service) Get(ctx context.Context, req *session.GetRequest) (*session.GetResponse, error) {
	info, err := s.store.Stat(ctx, names{req.AppName, req.UserID, req.SessionID}.id(kind))
	if err != nil {
		return nil, err
	}
	var events []*session.Event
	for e, err := range s.store.Read(ctx, info.ID, newest(info.LastSeq, max(req.NumRecentEvents, 0))) {
		event := &session.Event{ID: e.ID, Author: e.Author, Timestamp: e.At} // all that is left of a redacted one
		if err == nil {
			err = json.Unmarshal(e.Data, event)
		}
		if err != nil {
			return nil, fmt.Errorf("session %s, event %d: %w", info.ID, e.Seq, err)
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

func newest(upTo hansard.Seq, limit int) hansard.Range {
	return hansard.Range{Before: upTo + 1, Kinds: []string{kind}, Reverse: true, Limit: limit}
}

func (s service) List(ctx context.Context, req *session.ListRequest) (*session.ListResponse, error) {
	if req.AppName == "" {
		return nil, errors.New("app_name is required")
	}
	out, known := []session.Session{}, states{}
	for info, err := range s.store.List(ctx, hansard.Query{Prefix: string(names{req.AppName, req.UserID, ""}.id(kind)) + ":"}) {
		if err != nil {
			return nil, err
		}
		sess, err := s.open(ctx, info, nil, known)
		if err == nil {
			out = append(out, sess)
		} else if !errors.Is(err, hansard.ErrInvalid) { // a session that is not the ADK's, or can't be read, must not hide others
			return nil, err
		}
	}
	return &session.ListResponse{Sessions: out}, nil
}

func (s service) Delete(ctx context.Context, req *session.DeleteRequest) error {
	g, _ := ctx.Value(turn{}).(hansard.Grant)
	if err := s.store.Delete(ctx, names{req.AppName, req.UserID, req.SessionID}.id(kind), g); !missing(err) {
		return err
	}
	return nil
}

// AppendEvent stores an event with what it changes. It returns [hansard.ErrConflict] if the session has changed
// since Get. After another error the same event may be appended again, and is stored once; before appending a
// different one, the caller has to call Get again.
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
	if sess.owing {
		err := s.settle(ctx, sess, sess.seq)
		// What the store refuses as invalid was never accepted, and must not block later
		// events.
		if sess.owing = err != nil && !errors.Is(err, hansard.ErrInvalid); sess.owing {
			return err
		}
	}
	if event.ID == "" {
		event.ID = platform.NewUUID(ctx)
	}
	b, err := sess.doc.batch(event)
	if err != nil {
		return err
	}
	b.Turn, _ = ctx.Value(turn{}).(hansard.Grant)
	receipt, err := s.append(ctx, sess, b)
	if err == nil && receipt.Replayed {
		err = s.settle(ctx, sess, receipt.Last)
	} else if err == nil && b.Patch != nil {
		err = s.share(ctx, sess.doc, b.Patch.StateOps, b.Key, time.Time{})
	}
	if err != nil || receipt.Last <= sess.seq { // the session already had it when it was read
		return err
	}
	sess.seq = receipt.Last
	return sess.local.AppendEvent(ctx, sess.Session, event)
}

// append stores a batch if the session has not changed since Get, except for turns and events of other
// kinds.
func (s service) append(ctx context.Context, sess *stored, b hansard.Batch) (hansard.Receipt, error) {
	b.Expect = hansard.At(sess.seq)
	receipt, err := s.store.Append(ctx, sess.doc.id(kind), b)
	var conflict *hansard.ConflictError
	if !errors.As(err, &conflict) || conflict.Actual <= sess.seq {
		return receipt, err
	}
	for e, failed := range s.store.Read(ctx, conflict.Session, hansard.Range{After: sess.seq, Before: conflict.Actual + 1}) {
		if failed != nil || e.Kind == kind || len(e.Redacts) > 0 || e.Patch != nil && (e.Patch.State != nil || e.Patch.StateOps != nil) {
			return receipt, fmt.Errorf("the session is stale, get it again: %w", errors.Join(err, failed))
		}
	}
	sess.seq = conflict.Actual
	return s.append(ctx, sess, b)
}

// names are those of a session, of a user, or of an app.
type names struct {
	App     string `json:"app"`
	User    string `json:"user,omitempty"`
	Session string `json:"session,omitempty"`
}

func (n names) id(scheme string) hansard.SessionID {
	return hansard.IDOf(scheme, n.App, n.User, n.Session)
}

// owners are the app and the user whose state a session sees besides its own, by the prefix
// of the keys.
func (n names) owners() map[string]names {
	return map[string]names{session.KeyPrefixApp: {App: n.App}, session.KeyPrefixUser: {App: n.App, User: n.User}}
}

// document is the state document of a session of the store.
type document struct {
	names
	Nonce string         `json:"nonce,omitempty"` // distinguishes it from a deleted session of the same name
	State map[string]any `json:"state"`           // of an ADK session: with what it set for the app and the user
}

// key is the idempotency key of everything that is done because of an event.
func (d document) key(event string) string { return string(hansard.IDOf(kind, d.Nonce, event)) }

// batch is what an event commits: itself, and what it sets in the state.
func (d document) batch(event *session.Event) (hansard.Batch, error) {
	stripped := *event
	stripped.Actions.StateDelta = maps.Clone(event.Actions.StateDelta)
	maps.DeleteFunc(stripped.Actions.StateDelta, temporary)
	data, err := json.Marshal(stripped)
	e := hansard.Event{ID: hansard.FitName(event.ID), Kind: kind, Author: hansard.FitName(event.Author), At: event.Timestamp, Data: data}
	if event.Content != nil {
		e.Role = hansard.FitName(event.Content.Role)
	}
	b := hansard.Batch{Events: []hansard.Event{e}, Key: d.key(e.ID)}
	if ops := opsOf(stripped.Actions.StateDelta); len(ops) > 0 {
		b.Patch = &hansard.Patch{StateOps: ops}
	}
	return b, err
}

func temporary(key string, _ any) bool { return strings.HasPrefix(key, session.KeyPrefixTemp) }

// opsOf sets what a state has, in a fixed order, so that a retry is recognised.
func opsOf(state map[string]any) (ops []hansard.StateOp) {
	for _, k := range slices.Sorted(maps.Keys(state)) {
		value, _ := json.Marshal(state[k]) // the whole it is part of has already been encoded
		ops = append(ops, hansard.StateOp{Op: hansard.OpAdd, Path: hansard.StatePath("state", k), Value: value})
	}
	return ops
}

// stored is a session as Get read it, with what was appended to it since. The framework sees it as a
// session in memory.
type stored struct {
	session.Session
	local   session.Service // contains only that session
	created time.Time
	doc     document   // as it was read
	writing sync.Mutex // guards all below
	seq     hansard.Seq
	owing   bool // it is unknown whether everything it set for the app and the user was shared
}

// states are the states of apps and users that have been read.
type states map[names]map[string]any

func (s service) open(ctx context.Context, info hansard.Info, events []*session.Event, known states) (*stored, error) {
	sess := &stored{local: session.InMemoryService(), created: info.Created, seq: info.LastSeq}
	if json.Unmarshal(info.State, &sess.doc) != nil || sess.doc.id(kind) != info.ID {
		return nil, fmt.Errorf("%s is not a session of the ADK: %w", info.ID, hansard.ErrInvalid)
	}
	own, state := maps.Clone(sess.doc.State), map[string]any{}
	for prefix, owner := range sess.doc.owners() {
		maps.DeleteFunc(own, func(k string, _ any) bool { return strings.HasPrefix(k, prefix) })
		if _, ok := known[owner]; !ok {
			var d document
			theirs, err := s.store.Stat(ctx, owner.id(shared))
			if err == nil {
				err = json.Unmarshal(theirs.State, &d)
			}
			if err != nil && !missing(err) {
				return nil, err
			}
			known[owner] = d.State
		}
		maps.Copy(state, known[owner])
	}
	maps.Copy(state, own)
	sess.owing = len(own) < len(sess.doc.State)
	then := platform.WithTimeProvider(ctx, func() time.Time { return info.Updated })
	made, err := sess.local.Create(then, &session.CreateRequest{AppName: sess.doc.App, UserID: sess.doc.User, SessionID: sess.doc.Session, State: state})
	if err != nil {
		return nil, err
	}
	sess.Session = made.Session
	for _, event := range events {
		delta := event.Actions.StateDelta
		event.Actions.StateDelta = nil // what is left of it is in the state
		err = errors.Join(err, sess.local.AppendEvent(ctx, sess.Session, event))
		event.Actions.StateDelta = delta
	}
	return sess, err
}

func (s service) create(ctx context.Context, id hansard.SessionID, d document) (hansard.Info, error) {
	state, err := json.Marshal(d)
	if err != nil {
		return hansard.Info{}, err
	}
	labels := map[string]string{"adk_app": hansard.FitName(d.App), "adk_user": hansard.FitName(d.User), "adk_session": hansard.FitName(d.Session)}
	maps.DeleteFunc(labels, func(_, text string) bool { return text == "" })
	return s.store.Create(ctx, id, hansard.Meta{Labels: labels, State: state, Reuse: true})
}

// settle shares what the newest event up to a seq set (or, if there is none, the creation of the session), in place
// of a writer that may have been killed before it did so.
func (s service) settle(ctx context.Context, sess *stored, upTo hansard.Seq) error {
	ops, key, since := opsOf(sess.doc.State), sess.doc.key(""), sess.created
	for e, err := range s.store.Read(ctx, sess.doc.id(kind), newest(upTo, 1)) {
		if err != nil || e.Patch == nil {
			return err
		}
		ops, key, since = e.Patch.StateOps, sess.doc.key(e.ID), e.Time
	}
	return s.share(ctx, sess.doc, ops, key, since)
}

// share sets for the app and the user what operations on a session's state set for them, once per key. It
// leaves alone what others set after a time, unless that is zero.
func (s service) share(ctx context.Context, d document, ops []hansard.StateOp, key string, since time.Time) (err error) {
	for prefix, owner := range d.owners() {
		theirs := slices.DeleteFunc(slices.Clone(ops), func(op hansard.StateOp) bool { return !strings.HasPrefix(op.Path, "/state/"+prefix) })
		err = errors.Join(err, s.apply(ctx, owner, theirs, key, since))
	}
	return err
}

func (s service) apply(ctx context.Context, owner names, ops []hansard.StateOp, key string, since time.Time) (err error) {
	id, b := owner.id(shared), hansard.Batch{Key: key, Patch: &hansard.Patch{StateOps: ops}}
	if !since.IsZero() {
		b.Patch.StateOps, b.Expect, err = s.unset(ctx, id, ops, since)
	}
	if err == nil && len(b.Patch.StateOps) > 0 {
		_, err = s.store.Append(ctx, id, b)
	}
	switch {
	case missing(err):
		if _, err = s.create(ctx, id, document{names: owner, State: map[string]any{}}); err != nil && !errors.Is(err, hansard.ErrExists) {
			return err
		}
	case errors.Is(err, hansard.ErrKeyReused):
		return nil // it was done before, leaving out what others had set
	case !errors.Is(err, hansard.ErrConflict):
		return err
	}
	return s.apply(ctx, owner, ops, key, since)
}

// unset returns the operations whose values nobody set after a time, and the seq up to which it
// looked.
func (s service) unset(ctx context.Context, id hansard.SessionID, ops []hansard.StateOp, since time.Time) ([]hansard.StateOp, *hansard.Seq, error) {
	last, newer := hansard.Seq(0), map[string]bool{}
	for e, err := range s.store.Read(ctx, id, hansard.Range{Reverse: true}) {
		if err != nil {
			return nil, nil, err
		}
		last = max(last, e.Seq)
		if !e.Time.After(since) {
			break
		}
		if e.Patch != nil {
			for _, op := range e.Patch.StateOps {
				newer[op.Path] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(ops), func(op hansard.StateOp) bool { return newer[op.Path] }), &last, nil
}

func missing(err error) bool {
	return errors.Is(err, hansard.ErrNotFound) || errors.Is(err, hansard.ErrDeleted)
}
