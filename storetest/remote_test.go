package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"hansard"
)

// The wire by which processes reach a store in the memory of another: one HTTP
// request a call over a Unix socket. It is here so that the cases of several
// processes run before there is an engine that several processes can open.

type request struct {
	Op     string
	ID     hansard.SessionID
	Meta   hansard.Meta
	Batch  hansard.Batch
	Events []wireEvent // of the batch
	Range  hansard.Range
	After  hansard.Seq
	Query  hansard.Query
	Turn   hansard.Grant
	Claim  hansard.Claim
}

type response struct {
	Receipt hansard.Receipt
	Info    hansard.Info
	Infos   []hansard.Info
	Events  []wireEvent
	Turn    *hansard.Turn
	Err     *wireError
}

// wireEvent has its data as bytes: encoding/json would spell a RawMessage anew.
type wireEvent struct {
	hansard.Event
	Data []byte `json:"data"`
}

type wireError struct {
	Text     string
	Sentinel int // an index of sentinels
	Conflict *hansard.ConflictError
	Reused   *hansard.KeyReusedError
	Held     *hansard.HeldError
}

func (e *wireError) Error() string { return e.Text }

func (e *wireError) Unwrap() error {
	switch {
	case e.Conflict != nil:
		return e.Conflict
	case e.Reused != nil:
		return e.Reused
	case e.Held != nil:
		return e.Held
	case e.Sentinel >= 0:
		return sentinels[e.Sentinel]
	}
	return nil
}

func toWire(err error) *wireError {
	if err == nil {
		return nil
	}
	w := &wireError{Text: err.Error(), Sentinel: -1}
	errors.As(err, &w.Conflict)
	errors.As(err, &w.Reused)
	errors.As(err, &w.Held)
	for i, s := range sentinels {
		if w.Sentinel < 0 && errors.Is(err, s) {
			w.Sentinel = i
		}
	}
	return w
}

// serve gives the address at which other processes find the store.
func serve(t testing.TB, s hansard.Store) string {
	dir, err := os.MkdirTemp("", "storetest") // t.TempDir is too long a name for a socket
	if err != nil {
		t.Fatal(err)
	}
	address := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q request
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		json.NewEncoder(w).Encode(answerRequest(r.Context(), s, q))
	})}
	go server.Serve(l)
	t.Cleanup(func() {
		server.Close()
		os.RemoveAll(dir)
	})
	return address
}

func answerRequest(ctx context.Context, s hansard.Store, q request) (a response) {
	var err error
	switch q.Op {
	case "create":
		a.Info, err = s.Create(ctx, q.ID, q.Meta)
	case "append":
		for _, e := range q.Events {
			e.Event.Data = e.Data
			q.Batch.Events = append(q.Batch.Events, e.Event)
		}
		a.Receipt, err = s.Append(ctx, q.ID, q.Batch)
	case "read":
		var events []hansard.Event
		events, err = readRange(ctx, s, q.ID, q.Range)
		a.Events = wireEvents(events)
	case "wait":
		err = s.Wait(ctx, q.ID, q.After)
	case "stat":
		a.Info, err = s.Stat(ctx, q.ID)
	case "list":
		a.Infos, err = listAll(ctx, s, q.Query)
	case "delete":
		err = s.Delete(ctx, q.ID, q.Turn)
	case "acquire":
		var t hansard.Turn
		t, err = s.Acquire(ctx, q.ID, q.Claim)
		a.Turn = &t
	case "renew":
		err = s.Renew(ctx, q.ID, q.Turn)
	case "release":
		err = s.Release(ctx, q.ID, q.Turn)
	case "turn":
		a.Turn, err = s.Turn(ctx, q.ID)
	default:
		err = errors.New("no such operation")
	}
	a.Err = toWire(err)
	return a
}

func wireEvents(events []hansard.Event) []wireEvent {
	out := make([]wireEvent, len(events))
	for i, e := range events {
		out[i] = wireEvent{Event: e, Data: e.Data}
	}
	return out
}

// remote is a store in another process.
type remote struct {
	hansard.Store // nil: what no worker calls
	client        *http.Client
}

func dial(address string) *remote {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", address)
		},
	}
	return &remote{client: &http.Client{Transport: transport}}
}

func (r *remote) call(ctx context.Context, q request) (response, error) {
	var a response
	body, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://store/", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	res, err := r.client.Do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return a, fmt.Errorf("the server says %s", res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return a, err
	}
	if a.Err != nil {
		return a, a.Err
	}
	return a, nil
}

func (r *remote) Fork(context.Context, hansard.SessionID, hansard.Fork) (hansard.Info, error) {
	return hansard.Info{}, hansard.ErrUnsupported
}

func (r *remote) Create(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
	a, err := r.call(ctx, request{Op: "create", ID: id, Meta: m})
	return a.Info, err
}

func (r *remote) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	events := wireEvents(b.Events)
	b.Events = nil
	a, err := r.call(ctx, request{Op: "append", ID: id, Batch: b, Events: events})
	return a.Receipt, err
}

func (r *remote) Read(ctx context.Context, id hansard.SessionID, g hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		a, err := r.call(ctx, request{Op: "read", ID: id, Range: g})
		for _, e := range a.Events {
			e.Event.Data = e.Data
			if !yield(e.Event, nil) {
				return
			}
		}
		if err != nil {
			yield(hansard.Event{}, err)
		}
	}
}

func (r *remote) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	_, err := r.call(ctx, request{Op: "wait", ID: id, After: after})
	return err
}

func (r *remote) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	a, err := r.call(ctx, request{Op: "stat", ID: id})
	return a.Info, err
}

func (r *remote) List(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
	return func(yield func(hansard.Info, error) bool) {
		a, err := r.call(ctx, request{Op: "list", Query: q})
		for _, info := range a.Infos {
			if !yield(info, nil) {
				return
			}
		}
		if err != nil {
			yield(hansard.Info{}, err)
		}
	}
}

func (r *remote) Delete(ctx context.Context, id hansard.SessionID, turn hansard.Grant) error {
	_, err := r.call(ctx, request{Op: "delete", ID: id, Turn: turn})
	return err
}

func (r *remote) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	a, err := r.call(ctx, request{Op: "acquire", ID: id, Claim: c})
	if err != nil {
		return hansard.Turn{}, err
	}
	return *a.Turn, nil
}

func (r *remote) Renew(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	_, err := r.call(ctx, request{Op: "renew", ID: id, Turn: g})
	return err
}

func (r *remote) Release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	_, err := r.call(ctx, request{Op: "release", ID: id, Turn: g})
	return err
}

func (r *remote) Turn(ctx context.Context, id hansard.SessionID) (*hansard.Turn, error) {
	a, err := r.call(ctx, request{Op: "turn", ID: id})
	return a.Turn, err
}

func (r *remote) Close() error {
	r.client.CloseIdleConnections()
	return nil
}
