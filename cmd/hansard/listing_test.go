package main

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"hansard"
	"hansard/memstore"
)

// endless is a store whose list never ends.
type endless struct{ hansard.Store }

func (endless) List(ctx context.Context, _ hansard.Query) iter.Seq2[hansard.Info, error] {
	return func(yield func(hansard.Info, error) bool) {
		for i := range 1000 {
			if !yield(hansard.Info{ID: hansard.SessionID(fmt.Sprint("s", i)), Updated: time.Now()}, nil) {
				return
			}
		}
		<-ctx.Done()
		yield(hansard.Info{}, ctx.Err())
	}
}

// TestListingEndless: the entries left out of a list are counted only for a moment, and the list
// is still shown.
func TestListingEndless(t *testing.T) {
	var stdout, stderr bytes.Buffer
	a := &app{out: newOutput(&stdout), stderr: &stderr, now: time.Now}
	a.out.tty, a.out.height = true, 23
	l := &listing{app: a, flags: pflag.NewFlagSet("", pflag.ContinueOnError), screen: true}
	if err := l.run(t.Context(), endless{memstore.New()}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(stdout.String(), "\ns"); got != 20 {
		t.Errorf("%d rows, want 20", got)
	}
	if got, want := stderr.String(), "over 980 more; all of them: hansard ls --all\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// A signal while it counts is still a signal.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&listing{app: a, flags: l.flags, screen: true}).run(ctx, endless{memstore.New()}); err == nil {
		t.Error("an interrupted list ended without an error")
	}
}
