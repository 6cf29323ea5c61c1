package storetest

import (
	"context"
	"io"
	"iter"
	"os"
	"sync"
	"testing"

	"hansard"
	"hansard/memstore"
)

func TestMain(m *testing.M) {
	Main(func(address string) (hansard.Store, error) { return dial(address), nil })
	os.Exit(m.Run())
}

// TestShared runs the suite on one store in memory that has handles, can be
// opened again and is reached by other processes, so that every case runs here
// and a case that can't pass shows before any engine is blamed.
func TestShared(t *testing.T) { Run(t, sharedEngine(plant{})) }

// plant is where a mutant breaks the engine: the store all handles share, or
// each handle when it is opened.
type plant struct {
	inner  func(hansard.Store) hansard.Store
	handle func(h hansard.Store, inner hansard.Store) hansard.Store
}

// data is what the handles of one store share: what a directory is to files.
type data struct {
	store hansard.Store
	serve func() string // the socket of this data, served from the first call on
}

// sharedEngine makes an engine of memstore with everything an engine can have.
func sharedEngine(p plant) Engine {
	var mu sync.Mutex // guards of
	of := make(map[hansard.Store]*data)
	open := func(d *data) hansard.Store {
		h := hansard.Store(&handle{inner: d.store, done: make(chan struct{})})
		if p.handle != nil {
			h = p.handle(h, d.store)
		}
		mu.Lock()
		defer mu.Unlock()
		of[h] = d
		return h
	}
	find := func(h hansard.Store) *data {
		mu.Lock()
		defer mu.Unlock()
		return of[h]
	}
	return Engine{
		Name: "shared",
		Open: func(t testing.TB) hansard.Store {
			s := hansard.Store(memstore.New())
			if p.inner != nil {
				s = p.inner(s)
			}
			return open(&data{store: s, serve: sync.OnceValue(func() string { return serve(t, s) })})
		},
		Another: func(t testing.TB, h hansard.Store) hansard.Store { return open(find(h)) },
		Reopen: func(t testing.TB, h hansard.Store) hansard.Store {
			if err := h.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			return open(find(h))
		},
		Address: func(h hansard.Store) string { return find(h).serve() },
	}
}

// handle is one of several ways into a store; closing it closes only itself.
type handle struct {
	inner hansard.Store
	once  sync.Once
	done  chan struct{}
}

func (h *handle) closed() error {
	select {
	case <-h.done:
		return hansard.ErrClosed
	default:
		return nil
	}
}

func (h *handle) Create(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
	if err := h.closed(); err != nil {
		return hansard.Info{}, err
	}
	return h.inner.Create(ctx, id, m)
}

func (h *handle) Prune(ctx context.Context, scrub bool) (hansard.Pruned, error) {
	if err := h.closed(); err != nil {
		return hansard.Pruned{}, err
	}
	return h.inner.(hansard.Pruner).Prune(ctx, scrub)
}

func (h *handle) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	if err := h.closed(); err != nil {
		return hansard.Receipt{}, err
	}
	return h.inner.Append(ctx, id, b)
}

func (h *handle) Fork(ctx context.Context, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
	if err := h.closed(); err != nil {
		return hansard.Info{}, err
	}
	return h.inner.Fork(ctx, id, f)
}

func (h *handle) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		if err := h.closed(); err != nil {
			yield(hansard.Event{}, err)
			return
		}
		h.inner.Read(ctx, id, r)(yield)
	}
}

func (h *handle) Lend(ctx context.Context, id hansard.SessionID, r hansard.Range, show func(*hansard.Event) bool) error {
	if err := h.closed(); err != nil {
		return err
	}
	return hansard.Lend(ctx, h.inner, id, r, show)
}

// untilClosed ends a context with the handle.
func (h *handle) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-h.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (h *handle) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	ctx, cancel := h.untilClosed(ctx)
	defer cancel()
	if err := h.closed(); err != nil {
		return err
	}
	err := h.inner.Wait(ctx, id, after)
	if err != nil && h.closed() != nil {
		return hansard.ErrClosed
	}
	return err
}

func (h *handle) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	if err := h.closed(); err != nil {
		return hansard.Info{}, err
	}
	return h.inner.Stat(ctx, id)
}

func (h *handle) List(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
	return func(yield func(hansard.Info, error) bool) {
		if err := h.closed(); err != nil {
			yield(hansard.Info{}, err)
			return
		}
		h.inner.List(ctx, q)(yield)
	}
}

func (h *handle) Search(ctx context.Context, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	return func(yield func(hansard.Hit, error) bool) {
		if err := h.closed(); err != nil {
			yield(hansard.Hit{}, err)
			return
		}
		h.inner.(hansard.Searcher).Search(ctx, q)(yield)
	}
}

func (h *handle) Count(ctx context.Context, q hansard.Query) (int, error) {
	if err := h.closed(); err != nil {
		return 0, err
	}
	return hansard.Count(ctx, h.inner, q)
}

func (h *handle) Delete(ctx context.Context, id hansard.SessionID, turn hansard.Grant) error {
	if err := h.closed(); err != nil {
		return err
	}
	return h.inner.Delete(ctx, id, turn)
}

func (h *handle) Redact(ctx context.Context, id hansard.SessionID, r hansard.Redaction) (hansard.Receipt, error) {
	if err := h.closed(); err != nil {
		return hansard.Receipt{}, err
	}
	return h.inner.Redact(ctx, id, r)
}

func (h *handle) Attach(ctx context.Context, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) {
	if err := h.closed(); err != nil {
		return hansard.Attachment{}, err
	}
	return h.inner.Attach(ctx, id, r)
}

func (h *handle) OpenAttachment(ctx context.Context, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
	if err := h.closed(); err != nil {
		return nil, err
	}
	return h.inner.OpenAttachment(ctx, id, digest)
}

func (h *handle) Attachments(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Attachment, error] {
	return func(yield func(hansard.Attachment, error) bool) {
		if err := h.closed(); err != nil {
			yield(hansard.Attachment{}, err)
			return
		}
		h.inner.Attachments(ctx, id)(yield)
	}
}

func (h *handle) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	ctx, cancel := h.untilClosed(ctx)
	defer cancel()
	if err := h.closed(); err != nil {
		return hansard.Turn{}, err
	}
	t, err := h.inner.Acquire(ctx, id, c)
	if err != nil && h.closed() != nil {
		return t, hansard.ErrClosed
	}
	return t, err
}

func (h *handle) Renew(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if err := h.closed(); err != nil {
		return err
	}
	return h.inner.Renew(ctx, id, g)
}

func (h *handle) Release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if err := h.closed(); err != nil {
		return err
	}
	return h.inner.Release(ctx, id, g)
}

func (h *handle) Turn(ctx context.Context, id hansard.SessionID) (*hansard.Turn, error) {
	if err := h.closed(); err != nil {
		return nil, err
	}
	return h.inner.Turn(ctx, id)
}

func (h *handle) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

func (h *handle) Identity(ctx context.Context) (string, error) {
	return h.inner.(hansard.Identified).Identity(ctx)
}
