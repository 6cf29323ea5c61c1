package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/internal/syncbuf"
)

// TestServeLogsForTheStore: errors in the store's background work are in the server's log, as no
// caller would see them.
func TestServeLogsForTheStore(t *testing.T) {
	var stderr syncbuf.Buffer
	opened := errors.New("opened")
	a := &app{out: newOutput(&stderr), stderr: &stderr, now: time.Now,
		opener: func(_ string, o *filestore.Options) (hansard.Store, error) {
			if o.Log == nil {
				t.Fatal("the store gets no log")
			}
			o.Log.Warn("checkpoint failed", "error", "of the disk")
			return nil, opened
		}}
	if exit := a.run(context.Background(), []string{"serve", "--store", t.TempDir()}); exit == 0 {
		t.Error("a store that can't be opened is served")
	}
	if got := stderr.String(); !strings.Contains(got, "checkpoint failed") {
		t.Errorf("the log says %q", got)
	}
}

// TestServeIndexes: a server keeps the search index of its store up to date, so that the first
// search does not have to read all sessions.
func TestServeIndexes(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "append", "a", "hello", "--create")
	p := start(t, store, "serve", "--listen", "127.0.0.1:0")
	for !strings.HasPrefix(p.line(), "serving ") {
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	enough := time.After(waitMax)
	for {
		if info, err := os.Stat(filepath.Join(store, "cache", "search.db")); err == nil && info.Size() > 0 {
			return
		}
		select {
		case <-look.C:
		case <-enough:
			t.Fatalf("nobody has searched, and there is no index; stderr: %s", p.stderr)
		}
	}
}
