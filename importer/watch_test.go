package importer

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard/memstore"
)

// TestWatch follows a directory while a program writes to it, in pieces that end anywhere,
// rotates files, writes one anew from its beginning, and removes one. Nothing is missed,
// nothing twice, with and without a memory.
func TestWatch(t *testing.T) {
	t.Run("all is read", func(t *testing.T) { checkWatch(t, false) })
	t.Run("memory", func(t *testing.T) { checkWatch(t, true) })
}

func checkWatch(t *testing.T, remember bool) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	whole := files{}
	for _, id := range []string{"1", "2", "3"} {
		text := lines(id, clCustom, clU1, clThink, clCall, clResult, clAnswer, clFailed, clError, clImage, clBound, clSummary)
		whole["-w/"+id+".jsonl"] = strings.ReplaceAll(text, `"uuid":"`, `"uuid":"`+id) // no forks
	}
	dir := t.TempDir()
	store := memstore.New()
	defer store.Close()
	now := time.Unix(1_700_000_000, 0)
	written := map[string]int{}
	for name := range whole {
		written[name] = 0
	}
	steps := 0
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var memory *Memory
	if remember {
		memory = OpenMemory(store, "")
		memory.now = func() time.Time { return time.Now().Add(time.Hour) } // every file was left alone
	}
	w := &Watcher{Engine: &Engine{Store: store, Memory: memory}, Now: func() time.Time { return now }, Report: func(r Report) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}, Find: func() ([]*Source, error) { return memory.Named([]Format{claude{}}, []string{dir}) }}
	w.Pause = func(context.Context) error {
		now = now.Add(time.Second)
		for name, text := range whole {
			if written[name] == len(text) {
				continue
			}
			at := min(len(text), written[name]+random.IntN(800))
			if random.IntN(2) == 0 { // whole lines: such a file may be remembered
				at = strings.LastIndexByte(text[:at], '\n') + 1
			}
			path := filepath.Join(dir, name)
			if random.IntN(10) == 0 && at > 0 { // killed, and written anew
				at = random.IntN(at)
				if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
					return err
				}
			}
			files{name: text[:at]}.write(t, dir)
			// The clock of the file system may be coarse.
			if err := os.Chtimes(path, now, now); err != nil {
				return err
			}
			written[name] = at
		}
		if steps++; steps > 1000 {
			return errors.New("it never ends")
		}
		return nil
	}
	done := false
	inner := w.Pause
	w.Pause = func(ctx context.Context) error {
		if done { // all was there before the last look
			stop()
			return nil
		}
		if err := inner(ctx); err != nil {
			return err
		}
		done = true
		for name, text := range whole {
			done = done && written[name] == len(text)
		}
		return nil
	}
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	fresh, _ := imported(t, claude{}, dir)
	same(t, contents(t, fresh), contents(t, store))
}

// TestWatchRests: a source that takes long to read is not read all the time.
func TestWatchRests(t *testing.T) {
	dir := t.TempDir()
	store := memstore.New()
	defer store.Close()
	now := time.Unix(1_700_000_000, 0)
	reads := 0
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w := &Watcher{Engine: &Engine{Store: store}, Report: func(Report) { reads++ }, Find: func() ([]*Source, error) { return Named([]Format{claude{}}, []string{dir}) }}
	w.Now = func() time.Time { // every look at the clock takes a second
		now = now.Add(time.Second)
		return now
	}
	text := ""
	records := []string{clU1, clThink, clCall, clResult, clAnswer, clFailed, clError, clImage}
	w.Pause = func(context.Context) error {
		if len(records) == 0 {
			stop()
			return nil
		}
		text += lines("1", records[0])
		records = records[1:]
		files{"-w/1.jsonl": text}.write(t, dir)
		return nil
	}
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if reads == 0 || reads > 2 {
		t.Errorf("%d imports while it was written to 8 times, want 1 or 2", reads)
	}
}

// TestWatchIdle: what has not changed is not read again.
func TestWatchIdle(t *testing.T) {
	dir := t.TempDir()
	files{"-w/1.jsonl": clMain("1")}.write(t, dir)
	store := memstore.New()
	defer store.Close()
	var records atomic.Int64
	now := time.Unix(1_700_000_000, 0)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	looks := 0
	w := &Watcher{Engine: &Engine{Store: store, Progress: func(r, _ int) { records.Add(int64(r)) }}, Report: func(Report) {},
		Now: func() time.Time { return now }, Find: func() ([]*Source, error) { return Named([]Format{claude{}}, []string{dir}) }}
	w.Pause = func(context.Context) error {
		now = now.Add(time.Hour)
		if looks++; looks == 5 {
			stop()
		}
		return nil
	}
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if n := records.Load(); n != 5 {
		t.Errorf("%d records were read, want 5", n)
	}
}
