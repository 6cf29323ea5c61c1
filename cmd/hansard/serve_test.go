package main

import (
	"context"
	"errors"
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
