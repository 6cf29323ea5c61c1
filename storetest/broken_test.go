package storetest

import (
	"context"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"hansard"
)

// broken is a store of which single methods are replaced.
type broken struct {
	hansard.Store
	create func(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error)
	append func(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error)
	read   func(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error]
	lend   func(ctx context.Context, id hansard.SessionID, r hansard.Range, show func(*hansard.Event) bool) error
	wait   func(ctx context.Context, id hansard.SessionID, after hansard.Seq) error
	stat   func(ctx context.Context, id hansard.SessionID) (hansard.Info, error)
	list   func(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error]
	search func(ctx context.Context, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error]
	count  func(ctx context.Context, q hansard.Query) (int, error)
	delete func(ctx context.Context, id hansard.SessionID, turn hansard.Grant) error
	fork   func(ctx context.Context, id hansard.SessionID, f hansard.Fork) (hansard.Info, error)
	redact func(ctx context.Context, id hansard.SessionID, r hansard.Redaction) (hansard.Receipt, error)
	close  func() error

	attach      func(ctx context.Context, id hansard.SessionID, r io.Reader) (hansard.Attachment, error)
	open        func(ctx context.Context, id hansard.SessionID, digest string) (hansard.AttachmentReader, error)
	attachments func(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Attachment, error]

	identity func(ctx context.Context) (string, error)
	prune    func(ctx context.Context, scrub bool) (hansard.Pruned, error)

	acquire func(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error)
	renew   func(ctx context.Context, id hansard.SessionID, g hansard.Grant) error
	release func(ctx context.Context, id hansard.SessionID, g hansard.Grant) error
	turn    func(ctx context.Context, id hansard.SessionID) (*hansard.Turn, error)
}

func (s *broken) Identity(ctx context.Context) (string, error) {
	if s.identity != nil {
		return s.identity(ctx)
	}
	return s.Store.(hansard.Identified).Identity(ctx)
}

func (s *broken) Prune(ctx context.Context, scrub bool) (hansard.Pruned, error) {
	if s.prune != nil {
		return s.prune(ctx, scrub)
	}
	return s.Store.(hansard.Pruner).Prune(ctx, scrub)
}

// Lend is made of Read unless it is replaced itself, so that what is read wrongly is lent
// wrongly, too.
func (s *broken) Lend(ctx context.Context, id hansard.SessionID, r hansard.Range, show func(*hansard.Event) bool) error {
	if s.lend != nil {
		return s.lend(ctx, id, r, show)
	}
	return hansard.Lend(ctx, struct{ hansard.Store }{s}, id, r, show)
}

func (s *broken) Create(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
	if s.create != nil {
		return s.create(ctx, id, m)
	}
	return s.Store.Create(ctx, id, m)
}

func (s *broken) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	if s.append != nil {
		return s.append(ctx, id, b)
	}
	return s.Store.Append(ctx, id, b)
}

func (s *broken) Fork(ctx context.Context, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
	if s.fork != nil {
		return s.fork(ctx, id, f)
	}
	return s.Store.Fork(ctx, id, f)
}

func (s *broken) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	if s.read != nil {
		return s.read(ctx, id, r)
	}
	return s.Store.Read(ctx, id, r)
}

func (s *broken) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	if s.wait != nil {
		return s.wait(ctx, id, after)
	}
	return s.Store.Wait(ctx, id, after)
}

func (s *broken) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	if s.stat != nil {
		return s.stat(ctx, id)
	}
	return s.Store.Stat(ctx, id)
}

func (s *broken) List(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
	if s.list != nil {
		return s.list(ctx, q)
	}
	return s.Store.List(ctx, q)
}

func (s *broken) Search(ctx context.Context, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	if s.search != nil {
		return s.search(ctx, q)
	}
	return s.Store.(hansard.Searcher).Search(ctx, q)
}

// Count is by listing, so that a broken list is a broken count.
func (s *broken) Count(ctx context.Context, q hansard.Query) (int, error) {
	if s.count != nil {
		return s.count(ctx, q)
	}
	return hansard.Count(ctx, struct{ hansard.Store }{s}, q)
}

func (s *broken) Delete(ctx context.Context, id hansard.SessionID, turn hansard.Grant) error {
	if s.delete != nil {
		return s.delete(ctx, id, turn)
	}
	return s.Store.Delete(ctx, id, turn)
}

func (s *broken) Redact(ctx context.Context, id hansard.SessionID, r hansard.Redaction) (hansard.Receipt, error) {
	if s.redact != nil {
		return s.redact(ctx, id, r)
	}
	return s.Store.Redact(ctx, id, r)
}

func (s *broken) Attach(ctx context.Context, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) {
	if s.attach != nil {
		return s.attach(ctx, id, r)
	}
	return s.Store.Attach(ctx, id, r)
}

func (s *broken) OpenAttachment(ctx context.Context, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
	if s.open != nil {
		return s.open(ctx, id, digest)
	}
	return s.Store.OpenAttachment(ctx, id, digest)
}

func (s *broken) Attachments(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Attachment, error] {
	if s.attachments != nil {
		return s.attachments(ctx, id)
	}
	return s.Store.Attachments(ctx, id)
}

func (s *broken) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	if s.acquire != nil {
		return s.acquire(ctx, id, c)
	}
	return s.Store.Acquire(ctx, id, c)
}

func (s *broken) Renew(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if s.renew != nil {
		return s.renew(ctx, id, g)
	}
	return s.Store.Renew(ctx, id, g)
}

func (s *broken) Release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if s.release != nil {
		return s.release(ctx, id, g)
	}
	return s.Store.Release(ctx, id, g)
}

func (s *broken) Turn(ctx context.Context, id hansard.SessionID) (*hansard.Turn, error) {
	if s.turn != nil {
		return s.turn(ctx, id)
	}
	return s.Store.Turn(ctx, id)
}

func (s *broken) Close() error {
	if s.close != nil {
		return s.close()
	}
	return s.Store.Close()
}

// mutant is an engine that breaks one promise, and the cases that must notice.
type mutant struct {
	name   string
	caught []string
	plant  plant
	// patience is short where the breach is that something never happens.
	patience time.Duration
}

// inner breaks the store that all handles share.
func inner(breakIt func(b *broken, s hansard.Store)) plant {
	return plant{inner: func(s hansard.Store) hansard.Store {
		b := &broken{Store: s}
		breakIt(b, s)
		return b
	}}
}

// perHandle breaks each handle; n counts the handles opened on a store.
func perHandle(breakIt func(b *broken, h, inner hansard.Store, n int)) plant {
	var mu sync.Mutex // guards opened
	opened := make(map[hansard.Store]int)
	return plant{handle: func(h, inner hansard.Store) hansard.Store {
		mu.Lock()
		defer mu.Unlock()
		opened[inner]++
		b := &broken{Store: h}
		breakIt(b, h, inner, opened[inner])
		return b
	}}
}

// dawdle widens the window between looking and acting, so that a race that is
// planted is also lost.
func dawdle() { time.Sleep(200 * time.Microsecond) }

// eventsOf gives events, and then an error if there is one.
func eventsOf(events []hansard.Event, err error) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(hansard.Event{}, err)
		}
	}
}

func infosOf(infos []hansard.Info, err error) iter.Seq2[hansard.Info, error] {
	return func(yield func(hansard.Info, error) bool) {
		for _, i := range infos {
			if !yield(i, nil) {
				return
			}
		}
		if err != nil {
			yield(hansard.Info{}, err)
		}
	}
}

// recorder is a test that fails in silence.
type recorder struct {
	testing.TB // for what is not recorded: names and temporary directories

	mu       sync.Mutex // guards all below
	failed   bool
	skipped  bool
	said     []string
	cleanups []func()
}

// record runs a test and tells how it went.
func record(t testing.TB, f func(t testing.TB)) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.cleanUp()
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("a case panicked: %v", p) // it should fail instead
				r.Fail()
			}
		}()
		f(r)
	}()
	<-done
	return r
}

func (r *recorder) cleanUp() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

func (r *recorder) note(fail bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || fail
	r.said = append(r.said, text)
}

func (r *recorder) Helper()                           {}
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Log(args ...any)                   { r.note(false, fmt.Sprintln(args...)) }
func (r *recorder) Logf(format string, args ...any)   { r.note(false, fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.note(true, fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(true, fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); r.FailNow() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); r.FailNow() }
func (r *recorder) Fail()                             { r.note(true, "failed") }
func (r *recorder) FailNow()                          { r.Fail(); runtime.Goexit() }
func (r *recorder) Skip(args ...any)                  { r.Log(args...); r.SkipNow() }
func (r *recorder) Skipf(f string, args ...any)       { r.Logf(f, args...); r.SkipNow() }

func (r *recorder) SkipNow() {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}
