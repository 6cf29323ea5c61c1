package filestore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Long reads are done before write.lock is taken. These tests count what is read while it is
// held.

// lockCountFS counts what is read while its process holds write.lock.
type lockCountFS struct {
	vfs.FS
	held   bool
	locked map[string]int64 // bytes by name, under the lock
	opened map[string]int   // files opened while it is held
	before func()           // called before the lock is taken
}

func (l *lockCountFS) reset() { l.locked, l.opened = map[string]int64{}, map[string]int{} }

func (l *lockCountFS) Open(name string, flags vfs.Flag) (vfs.File, error) {
	if l.held {
		l.opened[name]++
	}
	f, err := l.FS.Open(name, flags)
	if err != nil {
		return nil, err
	}
	return &lockCountFile{f, name, l}, nil
}

type lockCountFile struct {
	vfs.File
	name string
	l    *lockCountFS
}

func (f *lockCountFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if f.l.held {
		f.l.locked[f.name] += int64(n)
	}
	return n, err
}

func (f *lockCountFile) Lock(mode vfs.LockMode) error {
	if f.name == peers.WriteLock && f.l.before != nil {
		f.l.before()
	}
	err := f.File.Lock(mode)
	if f.name == peers.WriteLock && err == nil {
		f.l.held = true
	}
	return err
}

func (f *lockCountFile) Unlock() error {
	if f.name == peers.WriteLock {
		f.l.held = false
	}
	return f.File.Unlock()
}

// lockWatched opens a store on a disk and counts what it reads under write.lock.
func lockWatched(t *testing.T, d *vfs.Disk, seed uint64) (*Store, *lockCountFS) {
	t.Helper()
	l := &lockCountFS{FS: d.Process(fmt.Sprint("watched ", seed))}
	l.reset()
	s, err := openOn(l, seed, growthRing)
	if err != nil {
		t.Fatal(err)
	}
	l.reset()
	return s, l
}

// wantShort fails if more was read of a log or its runs than its last line and lockedBytes.
func (l *lockCountFS) wantShort(t *testing.T, what string, name string, line int64) {
	t.Helper()
	if got := l.locked[sessionlog.Path(name)]; got > lockedBytes+64<<10+2*line {
		t.Errorf("%s: %d bytes of the log were read under write.lock", what, got)
	}
	for file, n := range l.opened {
		if strings.HasPrefix(file, cache.KeysDir) {
			t.Errorf("%s: %s was read under write.lock, %d times", what, file, n)
		}
	}
	t.Logf("%s: under the lock %v", what, l.locked)
	l.reset()
}

// keyedLog is a log that takes long to read.
func keyedLog(events int) []byte {
	return buildLog("keyed", 5, events, func(i int) (hansard.Event, string) { return pad(i, 500), fmt.Sprintf("key %d", i) })
}

func appendKeyed(t *testing.T, s *Store, key string, e hansard.Event) hansard.Receipt {
	t.Helper()
	r, err := s.Append(context.Background(), "keyed", hansard.Batch{Key: key, Events: []hansard.Event{e}})
	if err != nil {
		t.Fatalf("key %q: %v", key, err)
	}
	return r
}

// TestFailure60_KeysReadUnderTheLock: however many keys a session has, and whatever happens to
// their index between the lookup and the lock, nothing long is read while everybody waits.
func TestFailure60_KeysReadUnderTheLock(t *testing.T) {
	const events = 12_000
	log := keyedLog(events)
	base := withLogs(t, 1, map[hansard.SessionID][]byte{"keyed": log})
	known := func(t *testing.T, s *Store) {
		t.Helper()
		for _, i := range []int{0, events / 2, events - 1} {
			if r := appendKeyed(t, s, fmt.Sprintf("key %d", i), pad(i, 500)); !r.Replayed || int(r.First) != i+1 {
				t.Errorf("key %d again: %+v", i, r)
			}
		}
	}
	t.Run("from the log, then from the runs", func(t *testing.T) {
		d := base.Clone()
		for i := range uint64(3) {
			s, l := lockWatched(t, d, 10+i)
			if r := appendKeyed(t, s, fmt.Sprint("new ", i), text("more")); r.Replayed || r.First != events+1+hansard.Seq(i) {
				t.Errorf("a new key: %+v", r)
			}
			l.wantShort(t, fmt.Sprint("first append of process ", i), "keyed", 20_000)
			known(t, s)
			l.wantShort(t, "more appends", "keyed", 20_000)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("the index is forgotten before the lock", func(t *testing.T) {
		s, l := lockWatched(t, base.Clone(), 20)
		l.before = func() { s.keyring.keys.m = cache.LRU[*keyIndex]{} }
		if r := appendKeyed(t, s, "new", text("more")); r.Replayed {
			t.Errorf("a new key: %+v", r)
		}
		known(t, s)
		l.wantShort(t, "append", "keyed", 20_000)
	})
	t.Run("the log grows before the lock", func(t *testing.T) {
		d := base.Clone()
		s, l := lockWatched(t, d, 30)
		other, err := openOn(d.Process("other"), 31, growthRing)
		if err != nil {
			t.Fatal(err)
		}
		busy := false
		l.before = func() {
			if busy {
				return
			}
			busy = true // once
			for i := range 40 {
				appendKeyed(t, other, fmt.Sprint("theirs ", i), pad(i, 20_000))
			}
		}
		r := appendKeyed(t, s, "theirs 7", pad(7, 20_000))
		if !r.Replayed || r.First != events+8 {
			t.Errorf("a key that was used while we waited for the lock: %+v", r)
		}
		l.wantShort(t, "append", "keyed", 20_000)
	})
	t.Run("a run is written before the lock", func(t *testing.T) {
		d := base.Clone()
		s, l := lockWatched(t, d, 40)
		known(t, s)
		other, err := openOn(d.Process("other"), 41, growthRing)
		if err != nil {
			t.Fatal(err)
		}
		done := false
		l.before = func() {
			if done {
				return
			}
			done = true
			appendKeyed(t, other, "theirs", text("theirs"))
			k := s.keyring.keys.get("keyed")
			f, err := s.fs.Open(sessionlog.Path("keyed"), vfs.ReadOnly)
			if err == nil {
				err = k.catchUp(s.checks, "keyed", f, true)
			}
			if err != nil {
				t.Fatal(err)
			}
			k.save(s.process, "keyed")
		}
		if r := appendKeyed(t, s, "theirs", text("theirs")); !r.Replayed || r.First != events+1 {
			t.Errorf("a key that went to a run while we waited for the lock: %+v", r)
		}
		l.wantShort(t, "append", "keyed", 20_000)
	})
	t.Run("the log is replaced before the lock", func(t *testing.T) {
		d := base.Clone()
		s, l := lockWatched(t, d, 50)
		known(t, s)
		longer := buildLog("keyed", 5, events+1, func(i int) (hansard.Event, string) {
			if i == events {
				return text("restored"), "restored"
			}
			return pad(i, 500), fmt.Sprintf("key %d", i)
		})
		times := 0
		l.before = func() {
			if times++; times > 1 {
				return
			}
			putFile(t, d, "restored", longer)
			if err := d.Observer("somebody").Rename("restored", sessionlog.Path("keyed")); err != nil {
				t.Fatal(err)
			}
		}
		if r := appendKeyed(t, s, "restored", text("restored")); !r.Replayed || r.First != events+1 {
			t.Errorf("a key of the restored log: %+v", r)
		}
		l.wantShort(t, "append", "keyed", 20_000)
	})
	t.Run("a shorter log takes its place, and its index", func(t *testing.T) {
		d := base.Clone()
		s, l := lockWatched(t, d, 55)
		known(t, s)
		const fewer = 8000
		shorter := buildLog("keyed", 5, fewer, func(i int) (hansard.Event, string) {
			if i == 5 {
				return text("restored"), "restored"
			}
			return pad(i, 500), fmt.Sprintf("key %d", i)
		})
		times := 0
		l.before = func() {
			if times++; times > 1 {
				return
			}
			putFile(t, d, "restored", shorter)
			if err := d.Observer("somebody").Rename("restored", sessionlog.Path("keyed")); err != nil {
				t.Fatal(err)
			}
			f, err := s.fs.Open(sessionlog.Path("keyed"), vfs.ReadOnly)
			if err == nil {
				err = s.keyring.keys.get("keyed").catchUp(s.checks, "keyed", f, true)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if r := appendKeyed(t, s, "restored", text("restored")); !r.Replayed || r.First != 6 {
			t.Errorf("a key of the restored log: %+v", r)
		}
	})
	t.Run("the log grows before every lock", func(t *testing.T) {
		d := base.Clone()
		s, l := lockWatched(t, d, 60)
		other, err := openOn(d.Process("other"), 61, growthRing)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		l.before = func() {
			for range 20 {
				n++
				appendKeyed(t, other, fmt.Sprint("theirs ", n), pad(n, 20_000))
			}
		}
		if r := appendKeyed(t, s, "mine", text("mine")); r.Replayed || int(r.First) < events+20 {
			t.Errorf("append: %+v", r)
		}
	})
}

// TestMetaReadUnderTheLock: a long walk to the metadata, as in a log without snapshots, is done
// before write.lock is taken.
func TestMetaReadUnderTheLock(t *testing.T) {
	ctx := context.Background()
	log := buildLog("keyed", 5, 40, func(i int) (hansard.Event, string) {
		e := pad(i, 200<<10)
		e.Patch = &hansard.Patch{State: json.RawMessage(fmt.Sprintf(`{"k%d":%d}`, i, i))}
		return e, ""
	})
	for _, others := range []bool{false, true} {
		d := withLogs(t, 1, map[hansard.SessionID][]byte{"keyed": log})
		s, l := lockWatched(t, d, 2)
		other, err := openOn(d.Process("other"), 31, growthRing)
		if err != nil {
			t.Fatal(err)
		}
		times := 0
		l.before = func() {
			if times++; others && times < 6 {
				b := hansard.Batch{Patch: &hansard.Patch{State: json.RawMessage(fmt.Sprintf(`{"theirs":%d}`, times))}}
				if _, err := other.Append(ctx, "keyed", b); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range 3 {
			b := hansard.Batch{Patch: &hansard.Patch{State: json.RawMessage(fmt.Sprintf(`{"mine":%d}`, i))}}
			if _, err := s.Append(ctx, "keyed", b); err != nil {
				t.Fatal(err)
			}
			l.wantShort(t, fmt.Sprintf("patch %d, others %v", i, others), "keyed", 200<<10)
		}
		l.before = nil
		info, err := s.Stat(ctx, "keyed")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"k0":0`, `"k39":39`, `"mine":2`} {
			if !strings.Contains(string(info.State), want) {
				t.Errorf("the state has no %s: %s", want, info.State)
			}
		}
		if others && !strings.Contains(string(info.State), `"theirs":5`) {
			t.Errorf("the state has not what others wrote: %s", info.State)
		}
	}
}
