package adk

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/adk/v2/session"

	"hansard"
)

// names are those of a session, of a user, or of an app.
type names struct {
	App     string `json:"app"`
	User    string `json:"user,omitempty"`
	Session string `json:"session,omitempty"`
}

var plain = regexp.MustCompile(`^[A-Za-z0-9._-]{1,36}$`)

func (n names) id(scheme string) hansard.SessionID {
	for _, name := range []string{n.App, n.User, n.Session} {
		if name == "" {
			break
		}
		if !plain.MatchString(name) {
			name = "~" + hash(name)
		}
		scheme += ":" + name
	}
	return hansard.SessionID(scheme)
}

func hash(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:32] }

// fitting is a text as a label, an author or an event's id; one that can't be is hashed.
func fitting(text string) string {
	if len(text) > hansard.MaxNameBytes || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return hash(text)
	}
	return text
}

// document is the state document of a session of the store.
type document struct {
	names
	Nonce string         `json:"nonce,omitempty"` // tells it from a deleted one of its name
	State map[string]any `json:"state"`
	Owed  *owed          `json:"owed,omitempty"`
}

// key names what is done because of an event.
func (d document) key(event string) string { return hash(d.Nonce + " " + event) }

// owed is what an event changes for others.
type owed struct {
	Key  string         `json:"key"`
	App  map[string]any `json:"app,omitempty"`
	User map[string]any `json:"user,omitempty"`
}

// split divides a change of state into the session's own and that for others, and leaves out what is temporary.
func split(delta map[string]any, key string) (map[string]any, *owed) {
	own, o := map[string]any{}, &owed{Key: key, App: map[string]any{}, User: map[string]any{}}
	for k, v := range delta {
		if rest, ok := strings.CutPrefix(k, session.KeyPrefixApp); ok {
			o.App[rest] = v
		} else if rest, ok := strings.CutPrefix(k, session.KeyPrefixUser); ok {
			o.User[rest] = v
		} else if !strings.HasPrefix(k, session.KeyPrefixTemp) {
			own[k] = v
		}
	}
	if len(o.App)+len(o.User) == 0 {
		o = nil
	}
	return own, o
}

// opsOf sets what a change names, in one order, so that a retry is known as one.
func opsOf(delta map[string]any) (ops []hansard.StateOp, err error) {
	for _, k := range slices.Sorted(maps.Keys(delta)) {
		value, err := json.Marshal(delta[k])
		if err != nil {
			return nil, fmt.Errorf("state %q: %w", k, err)
		}
		path := "/state/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(k)
		ops = append(ops, hansard.StateOp{Op: hansard.OpAdd, Path: path, Value: value})
	}
	return ops, nil
}

// stored is a session as it was got, with what was appended to it since. What the framework sees of it
// is a session in memory.
type stored struct {
	session.Session
	local   session.Service // nothing but that session
	created time.Time
	updated time.Time
	writing sync.Mutex // guards what is below
	doc     document   // the state in it is that of the beginning
	seq     hansard.Seq
	paid    bool // what the document owes
}

// LastUpdateTime is that of the newest event it has, or else the store's.
func (s *stored) LastUpdateTime() time.Time {
	if s.Events().Len() == 0 {
		return s.updated
	}
	return s.Session.LastUpdateTime()
}

var errForeign = errors.New("it is not a session of the ADK")

// states are those of apps and of users, as far as they were read.
type states map[names]map[string]any

func (s service) open(ctx context.Context, info hansard.Info, events []*session.Event, known states) (*stored, error) {
	sess := &stored{local: session.InMemoryService(), created: info.Created, updated: info.Updated, seq: info.LastSeq}
	if json.Unmarshal(info.State, &sess.doc) != nil || sess.doc.id("adk") != info.ID {
		return nil, fmt.Errorf("%s: %w", info.ID, errForeign)
	}
	n := sess.doc.names
	made, err := sess.local.Create(ctx, &session.CreateRequest{AppName: n.App, UserID: n.User, SessionID: n.Session})
	if err != nil {
		return nil, err
	}
	sess.Session = made.Session
	for _, event := range events {
		err = errors.Join(err, sess.local.AppendEvent(ctx, sess.Session, event))
	}
	// The state comes last: what events made of it is not all of it.
	known[n] = sess.doc.State
	for prefix, n := range map[string]names{"": n, session.KeyPrefixApp: {App: n.App}, session.KeyPrefixUser: {App: n.App, User: n.User}} {
		if _, ok := known[n]; !ok {
			var d document
			shared, err := s.store.Stat(ctx, n.id("adk-shared"))
			if err == nil {
				err = json.Unmarshal(shared.State, &d)
			}
			if err != nil && !missing(err) {
				return nil, fmt.Errorf("state of app %q, user %q: %w", n.App, n.User, err)
			}
			known[n] = d.State
		}
		for k, v := range known[n] {
			err = errors.Join(err, sess.State().Set(prefix+k, v))
		}
	}
	return sess, err
}

// batch is what an event commits: itself, the state it changes, and what it changes for others.
func (s *stored) batch(event *session.Event) (hansard.Batch, *owed, error) {
	key := s.doc.key(event.ID)
	delta, own := split(event.Actions.StateDelta, key)
	lasting := *event
	lasting.Actions.StateDelta = maps.Clone(event.Actions.StateDelta)
	maps.DeleteFunc(lasting.Actions.StateDelta, func(k string, _ any) bool { return strings.HasPrefix(k, session.KeyPrefixTemp) })
	ops, err := opsOf(delta)
	data, badEvent := json.Marshal(lasting)
	debt, badDebt := json.Marshal(own)
	e := hansard.Event{ID: fitting(event.ID), Kind: kind, Author: fitting(event.Author), At: event.Timestamp, Data: data}
	if event.Content != nil {
		e.Role = fitting(event.Content.Role)
	}
	if own != nil || s.doc.Owed != nil {
		ops = append(ops, hansard.StateOp{Op: hansard.OpAdd, Path: "/owed", Value: debt})
	}
	b := hansard.Batch{Events: []hansard.Event{e}, Key: key}
	if len(ops) > 0 {
		b.Patch = &hansard.Patch{StateOps: ops}
	}
	return b, own, errors.Join(err, badEvent, badDebt)
}
