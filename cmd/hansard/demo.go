package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/cmd/hansard/internal/demo"
	"hansard/internal/wire"
)

func newDemo(a *app) *cobra.Command {
	o := demo.Options{}
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Fill the store with simulated agents, to have something to look at",
		Long: `Fill the store with agents talking: people ask, agents take turns, call tools, send
images, summarise and are interrupted, in several sessions at once. Watch them on the
page of "hansard serve", or with ls and tail -f in another terminal.

What they say is made up; the sessions are as real as any others. They carry the
label source=demo, and their ids begin with demo-. It runs until Ctrl-C, for as
long as --for says, or until as many sessions as --sessions says have ended.`,
		Example: `  hansard demo
  hansard demo --store http://127.0.0.1:4267
  hansard demo --for 30s --at-once 8
  hansard demo --sessions 5 --pause 0s
  hansard ls --label source=demo --json | jq -r .id | xargs hansard rm --yes`,
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDemo(&o, lasts, cmd.Flags().Changed("for")); err != nil {
				return err
			}
			return a.withStore(creating, func(s hansard.Store) error { return a.demo(cmd.Context(), s, o, lasts) })
		},
	}
	flags := cmd.Flags()
	durationVar(flags, &lasts, "for", 0, "stop after this time: 30s, 10m")
	flags.IntVar(&o.Sessions, "sessions", 0, "stop after `N` sessions")
	flags.IntVar(&o.AtOnce, "at-once", 4, "how many sessions, `N`, are under way at the same time")
	durationVar(flags, &o.Pause, "pause", 1500*time.Millisecond, "the average pause before a message; 0s is none")
	flags.Uint64Var(&o.Seed, "seed", 0, "make the same conversations as an earlier run with this `SEED` (in another store)")
	return cmd
}

func checkDemo(o *demo.Options, lasts time.Duration, limited bool) error {
	switch {
	case limited && lasts <= 0:
		return &usageError{fmt.Sprintf("--for %v is not a time span", lasts), "write --for 30s"}
	case o.Sessions < 0:
		return &usageError{fmt.Sprintf("--sessions %d is negative", o.Sessions), "0 runs until Ctrl-C"}
	case o.AtOnce < 1 || o.AtOnce > 1000:
		return &usageError{fmt.Sprintf("--at-once %d is not between 1 and 1000", o.AtOnce), ""}
	case o.Pause < 0:
		return &usageError{fmt.Sprintf("--pause %v is negative", o.Pause), "0s does not wait"}
	}
	return nil
}

// demo plays, reports each session as it begins, and a total at the end.
func (a *app) demo(ctx context.Context, s hansard.Store, o demo.Options, lasts time.Duration) error {
	inner := ctx
	if lasts > 0 {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeout(ctx, lasts)
		defer cancel()
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	var mu sync.Mutex // several sessions begin at once
	o.Began = func(info hansard.Info) {
		mu.Lock()
		defer mu.Unlock()
		if a.json {
			_ = a.out.jsonLine(wire.NewSession(info)) // the first error sticks, and Flush returns it
		} else {
			fmt.Fprintf(a.out, "%s  %s\n", escapeLine(string(info.ID)), escapeLine(info.Title))
		}
		_ = a.out.Flush()
	}
	played, err := demo.Run(inner, s, o)
	if err != nil {
		return fmt.Errorf("the demo stopped: %w", err)
	}
	if !a.json {
		fmt.Fprintf(a.out, "%s, %s\n", plural(int(played.Sessions.Load()), "session"), plural(int(played.Events.Load()), "event"))
	}
	if _, stopped := stoppedBy(ctx); stopped {
		return &quietError{context.Canceled} // Ctrl-C is its normal end
	}
	if err := ctx.Err(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
