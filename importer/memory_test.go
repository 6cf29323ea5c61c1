package importer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/memstore"
)

// counting is Claude Code's format, and counts what is read of the sources.
type counting struct {
	claude
	heads, reads, bytes *atomic.Int64
}

func (c counting) Match(path string, head func() []byte) bool {
	return c.claude.Match(path, func() []byte {
		c.heads.Add(1)
		return head()
	})
}

func (c counting) Read(ctx context.Context, in *Input, emit func(Record) error) error {
	c.reads.Add(1)
	return c.claude.Read(ctx, in, func(rec Record) error {
		c.bytes.Add(int64(len(rec.Event.Data)))
		return emit(rec)
	})
}

// calls counts what a store is asked.
type calls struct {
	hansard.Store
	appends, reads, stats atomic.Int64
}

func (c *calls) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	c.appends.Add(1)
	return c.Store.Append(ctx, id, b)
}

func (c *calls) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	c.reads.Add(1)
	return c.Store.Read(ctx, id, r)
}

func (c *calls) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	c.stats.Add(1)
	return c.Store.Stat(ctx, id)
}

// remembering is a directory that is imported again and again, by a new process each time.
type remembering struct {
	t      *testing.T
	dir    string
	path   string // of the memory
	store  *calls
	format counting
	later  time.Duration // how much later it is when the files are read
}

func newRemembering(t *testing.T, f files) *remembering {
	r := &remembering{t: t, dir: t.TempDir(), path: filepath.Join(t.TempDir(), "imports"), store: &calls{Store: memstore.New()},
		format: counting{heads: &atomic.Int64{}, reads: &atomic.Int64{}, bytes: &atomic.Int64{}}, later: time.Hour}
	t.Cleanup(func() { _ = r.store.Close() })
	f.write(t, r.dir)
	return r
}

// run imports, and returns how many events were added; all counts begin anew.
func (r *remembering) run() (added, records int) {
	r.t.Helper()
	for _, n := range []*atomic.Int64{r.format.heads, r.format.reads, r.format.bytes, &r.store.appends, &r.store.reads, &r.store.stats} {
		n.Store(0)
	}
	m := OpenMemory(r.store, r.path)
	m.now = func() time.Time { return time.Now().Add(r.later) }
	sources, err := m.Named([]Format{r.format}, []string{r.dir})
	if err != nil {
		r.t.Fatal(err)
	}
	err = (&Engine{Store: r.store, Memory: m}).Run(context.Background(), sources, func(rep Report) {
		if rep.Err != nil {
			r.t.Error(rep.Err)
		}
		added, records = added+rep.Added, records+rep.Records
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := m.Save(); err != nil {
		r.t.Fatal(err)
	}
	return added, records
}

// many are so many small sessions, no two of which begin with the same record.
func many(n int) files {
	f := files{}
	for i := range n {
		id := fmt.Sprintf("s%d", i)
		f["projects/-w/"+id+".jsonl"] = strings.ReplaceAll(lines(id, clU1, clThink, clCall, clResult, clAnswer), `"uuid":"`, `"uuid":"`+id)
	}
	return f
}

// TestMemory: files that have not changed are not opened again, and the store is asked once
// for each. One that has changed is read, and no other.
func TestMemory(t *testing.T) {
	const sessions = 500
	r := newRemembering(t, many(sessions))
	added, records := r.run()
	first := r.format.bytes.Load()
	if added != 5*sessions || records != added {
		t.Fatalf("%d of %d records were added", added, records)
	}
	for i := range 2 {
		added, again := r.run()
		if added != 0 || again != records {
			t.Errorf("import %d: %d of %d records were added", i+2, added, again)
		}
		if r.format.heads.Load()+r.format.reads.Load()+r.format.bytes.Load()+r.store.appends.Load() != 0 || r.store.reads.Load() != sessions || r.store.stats.Load() != 0 {
			t.Errorf("import %d: %d heads, %d files, %d bytes were read; %d appends, %d reads, %d stats", i+2,
				r.format.heads.Load(), r.format.reads.Load(), r.format.bytes.Load(), r.store.appends.Load(), r.store.reads.Load(), r.store.stats.Load())
		}
	}
	f, err := os.OpenFile(filepath.Join(r.dir, "projects/-w/s7.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(lines("s7", strings.ReplaceAll(clError, `"uuid":"`, `"uuid":"s7`)))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if added, _ := r.run(); added != 1 || r.format.bytes.Load() > 3*first/sessions+3000 {
		t.Errorf("%d events were added, %d bytes read", added, r.format.bytes.Load())
	}
}

// TestMemoryIsNeverWrong: whatever happens to a file, its session or the memory, an import
// with a memory stores what one without it does.
func TestMemoryIsNeverWrong(t *testing.T) {
	const name = "projects/-w/s0.jsonl"
	path := func(r *remembering) string { return filepath.Join(r.dir, name) }
	other := strings.ReplaceAll(many(1)[name], "uuid\":\"s0", "uuid\":\"x0") // of the same size
	keepTime := func(r *remembering, change func() error) error {
		info, err := os.Stat(path(r))
		if err == nil {
			err = change()
		}
		if err == nil {
			err = os.Chtimes(path(r), info.ModTime(), info.ModTime())
		}
		return err
	}
	for what, c := range map[string]struct {
		change func(r *remembering) error
		added  int
	}{
		"nothing": {func(*remembering) error { return nil }, 0},
		"rewritten in place, with its old time": {func(r *remembering) error {
			return keepTime(r, func() error { return os.WriteFile(path(r), []byte(other), 0o600) })
		}, 5},
		"replaced, with its old time": {func(r *remembering) error {
			return keepTime(r, func() error {
				if err := os.WriteFile(path(r)+".new", []byte(other), 0o600); err != nil {
					return err
				}
				return os.Rename(path(r)+".new", path(r))
			})
		}, 5},
		"another store": {func(r *remembering) error {
			err := r.store.Store.Close()
			r.store.Store = memstore.New()
			return err
		}, 15},
		"a session of a store that was put back": {func(r *remembering) error {
			err := r.store.Store.Close()
			r.store.Store = memstore.New()
			for range 9 { // more events than the session had
				_, failed := r.store.Store.Append(context.Background(), "claude:s0", hansard.Batch{Create: true, Events: []hansard.Event{{Kind: "x", Data: []byte("1")}}})
				err = errors.Join(err, failed)
			}
			return err
		}, 15},
		"the memory is lost": {func(r *remembering) error { return os.Remove(r.path) }, 0},
		"the memory is torn": {func(r *remembering) error { return os.Truncate(r.path, 300) }, 0},
		"the memory is of another version": {func(r *remembering) error {
			return os.WriteFile(r.path, []byte("\"hansard imports 0\"\n{\"file\":1}"), 0o600)
		}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRemembering(t, many(3))
			r.run()
			if err := c.change(r); err != nil {
				t.Fatal(err)
			}
			if added, records := r.run(); added != c.added || records != 15 {
				t.Errorf("%d of %d records were added, want %d", added, records, c.added)
			}
			if added, _ := r.run(); added != 0 || r.format.reads.Load() != 0 {
				t.Errorf("then %d more, and %d files were read", added, r.format.reads.Load())
			}
		})
	}
}

// TestMemoryOfWhatIsNotOver: files that were just written, that end in a torn line or have
// damage, and those whose sub-agents are not there yet are read again.
func TestMemoryOfWhatIsNotOver(t *testing.T) {
	t.Run("just written", func(t *testing.T) {
		r := newRemembering(t, many(1))
		r.later = 0
		r.run()
		if r.run(); r.format.reads.Load() == 0 {
			t.Error("it was not read again")
		}
	})
	t.Run("torn", func(t *testing.T) {
		r := newRemembering(t, files{"projects/-w/1.jsonl": lines("1", clU1) + clThink})
		r.run()
		if r.run(); r.format.reads.Load() == 0 {
			t.Error("it was not read again")
		}
	})
	t.Run("a sub-agent that comes later", func(t *testing.T) {
		agent := strings.Replace(lines("1", clU1), `"isSidechain":false`, `"isSidechain":true`, 1)
		r := newRemembering(t, files{"projects/-w/1.jsonl": lines("1", clU1, clCall, strings.Replace(clResult, `"stderr":""`, `"agentId":"ag1"`, 1))})
		r.run()
		files{"projects/-w/1/subagents/agent-ag1.jsonl": strings.ReplaceAll(agent, `"uuid":"`, `"uuid":"q`)}.write(t, r.dir)
		r.run()
		info, err := r.store.Store.Stat(context.Background(), SessionID(r.format, "1:agent-ag1"))
		if err != nil || info.Labels[LabelSpawnedBy] == "" {
			t.Errorf("the link is missing: %v, %v", info.Labels, err)
		}
		if r.run(); r.format.reads.Load() != 0 {
			t.Errorf("%d files were read again", r.format.reads.Load())
		}
		// Its kind is in a file beside it.
		files{"projects/-w/1/subagents/agent-ag1.meta.json": `{"agentType":"explorer"}`}.write(t, r.dir)
		if r.run(); r.format.reads.Load() == 0 {
			t.Error("the file beside it was not seen")
		}
	})
}

// TestMemoryOfDeleted: nothing is remembered of a session that was deleted in the store.
func TestMemoryOfDeleted(t *testing.T) {
	r := newRemembering(t, many(2))
	r.run()
	if err := r.store.Delete(context.Background(), "claude:s0", ""); err != nil {
		t.Fatal(err)
	}
	m := OpenMemory(r.store, r.path)
	sources, err := m.Named([]Format{r.format}, []string{r.dir})
	if err != nil {
		t.Fatal(err)
	}
	deleted := 0
	err = (&Engine{Store: r.store, Memory: m}).Run(context.Background(), sources, func(rep Report) {
		if errors.Is(rep.Err, hansard.ErrDeleted) {
			deleted++
		}
	})
	if err = errors.Join(err, m.Save()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(r.path)
	if err != nil || deleted != 1 || strings.Contains(string(text), "s0.jsonl") || !strings.Contains(string(text), "s1.jsonl") {
		t.Errorf("%d were deleted, %v; the memory is\n%s", deleted, err, text)
	}
}

// TestMemoryAndForks: a fork that comes later is a fork of a session whose file has not
// changed, and those that are known are not compared again.
func TestMemoryAndForks(t *testing.T) {
	r := newRemembering(t, files{"projects/-w/1.jsonl": lines("1", clCustom, clU1, clThink, clCall)})
	r.run()
	files{"projects/-w/2.jsonl": lines("2", clU1, clThink, clAnswer)}.write(t, r.dir)
	r.run()
	info, err := r.store.Store.Stat(context.Background(), SessionID(r.format, "2"))
	if err != nil || info.Parent == nil || info.Parent.ID != SessionID(r.format, "1") {
		t.Errorf("it is a fork of %v, %v", info.Parent, err)
	}
	if added, records := r.run(); added != 0 || records != 7 || r.format.reads.Load() != 0 {
		t.Errorf("%d of %d records were added, %d files read", added, records, r.format.reads.Load())
	}
}

// TestMemoryOfFour: four programs that import and save at once store everything once, and
// leave a memory that can be used.
func TestMemoryOfFour(t *testing.T) {
	r := newRemembering(t, many(20))
	once, _ := imported(t, claude{}, r.dir)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			m := OpenMemory(r.store, r.path)
			m.now = func() time.Time { return time.Now().Add(time.Hour) }
			sources, err := m.Named([]Format{r.format}, []string{r.dir})
			if err == nil {
				err = (&Engine{Store: r.store, Memory: m}).Run(context.Background(), sources, func(rep Report) {
					if rep.Err != nil {
						t.Error(rep.Err)
					}
				})
			}
			if err = errors.Join(err, m.Save()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	same(t, contents(t, once), contents(t, r.store.Store))
	if added, records := r.run(); added != 0 || records != 100 || r.format.reads.Load() != 0 {
		t.Errorf("%d of %d records were added, %d files read", added, records, r.format.reads.Load())
	}
}
