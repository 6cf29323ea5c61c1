package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
	"hansard/transcript"
)

func newFork(a *app) *cobra.Command {
	var f hansard.Fork
	var at uint64
	var atID, as string
	var labels []string
	cmd := &cobra.Command{
		Use:   "fork ID",
		Short: "Make a new session that begins with another's history",
		Long: `Make a new session that has the events of another one up to a point, and print its
id. What is appended to one of the two is not in the other, and deleting one leaves
the other as it is. Times, seqs, ids, keys and attachments are those of the original;
then comes an event of kind fork that says where the history is from.

--at is the seq of the last event that the fork has, --at-id the same by the event's
own id; without them it is the last event. A batch is not split: a point inside
one is refused, and the message says where a fork can be made. If the result of a tool
call comes after the point, the command warns: models refuse a call without a result.

Without --as the fork gets a UUIDv7. An id that is taken is an error (exit 4).`,
		Example: `  hansard fork demo --as demo-2
  hansard fork demo --at 12 --title "Another way"
  id=$(hansard fork demo --at-id msg-17)`,
		Args:              arguments(1, "a session id"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := hansard.CheckID(id); err != nil {
				return err
			}
			switch {
			case cmd.Flags().Changed("at") && cmd.Flags().Changed("at-id"):
				return &usageError{"--at and --at-id exclude each other", "give one of them"}
			case cmd.Flags().Changed("at") && at == 0:
				return &usageError{"--at: there is no event 0", "leave it out for the last event"}
			case cmd.Flags().Changed("as") && as == "":
				return &usageError{"--as: it is empty", "leave it out for an id of the store's"}
			}
			f.At, f.As = hansard.Seq(at), hansard.SessionID(as)
			var err error
			if f.Meta.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			if err := engine.CheckFork(&f); err != nil {
				return err
			}
			return a.withStore(writing, func(s hansard.Store) error { return a.fork(cmd.Context(), s, id, f, atID) })
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&at, "at", 0, "the last event that the fork has, a `SEQ` (default: the last event)")
	flags.StringVar(&atID, "at-id", "", "the same by the event's own `ID`")
	flags.StringVar(&as, "as", "", "the `ID` of the fork (default: a new one)")
	flags.StringVar(&f.Meta.Title, "title", "", "the fork's title, a `TEXT` (default: the original's)")
	flags.StringArrayVar(&labels, "label", nil, "a label of the fork, `k=v`, beside the original's; may be repeated")
	return cmd
}

func (a *app) fork(ctx context.Context, s hansard.Store, id hansard.SessionID, f hansard.Fork, atID string) error {
	if atID != "" {
		for e, err := range s.Read(ctx, id, hansard.Range{ID: atID}) {
			if err != nil {
				return err
			}
			f.At = e.Seq
		}
	}
	done := a.stillCopying(ctx, s, id)
	info, err := s.Fork(ctx, id, f)
	done()
	if err != nil {
		return err
	}
	if info.Parent != nil {
		a.warnOfOpenCalls(ctx, s, info)
	}
	if a.json {
		return a.out.jsonLine(wire.NewSession(info))
	}
	_, err = fmt.Fprintln(a.out, escapeLine(string(info.ID)))
	return err
}

// stillCopying tells people on a terminal what takes so long, until end is called.
func (a *app) stillCopying(ctx context.Context, s hansard.Store, id hansard.SessionID) (end func()) {
	if !isTerminal(a.stderr) {
		return func() {}
	}
	size := ""
	if info, err := s.Stat(ctx, id); err == nil {
		size = " (" + humanBytes(info.Bytes) + ")"
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		p, began := newProgress(a.stderr), time.Now()
		defer p.done()
		tick := time.NewTicker(time.Second / 4)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.show(func() string {
					return fmt.Sprintf("copying the history of %s%s, %v so far", escapeLine(string(id)), size, time.Since(began).Round(time.Second))
				})
			case <-over:
				return
			}
		}
	}()
	return func() { close(over); <-ended }
}

// warnOfOpenCalls says which tool calls in a fork have no result there.
func (a *app) warnOfOpenCalls(ctx context.Context, s hansard.Store, info hansard.Info) {
	calls, err := openCalls(ctx, s, info)
	if err != nil || len(calls) == 0 {
		return // the fork is made; a later read reports what can't be read
	}
	const most = 3
	shown := calls[:min(len(calls), most)]
	more := ""
	if len(calls) > most {
		more = fmt.Sprintf(" and %d more", len(calls)-most)
	}
	fmt.Fprintf(a.stderr, "hansard: warning: the fork ends before the result of %s%s\n", escapeLine(strings.Join(shown, ", ")), more)
	fmt.Fprintln(a.stderr, "hint: most models refuse a call without its result; append one, or fork behind it")
}

// callWindow is how many events before the end are searched for calls without results.
const callWindow = 1000

// openCalls are the tool calls at the end of a fork's history whose results it does not
// have, with the seqs of their events.
func openCalls(ctx context.Context, s hansard.Store, info hansard.Info) ([]string, error) {
	type call struct {
		id, text string
	}
	var open []call
	for e, err := range s.Read(ctx, info.ID, hansard.Range{Before: info.Parent.At + 1, Last: callWindow}) {
		if err != nil {
			return nil, err
		}
		for _, p := range transcript.Of(e).Parts {
			switch {
			case p.Type == transcript.Call && p.ID != "":
				open = append(open, call{p.ID, fmt.Sprintf("%s (event %d)", p.Name, e.Seq)})
			case p.Type == transcript.Result && p.ID != "":
				for i := range open {
					if open[i].id == p.ID {
						open[i].id = ""
					}
				}
			}
		}
	}
	var out []string
	for _, c := range open {
		if c.id != "" {
			out = append(out, c.text)
		}
	}
	return out, nil
}
