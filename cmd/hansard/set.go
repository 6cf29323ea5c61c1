package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"hansard"
)

// setOptions are the flags of set.
type setOptions struct {
	title    string
	labels   []string
	unlabels []string
	state    string
	expect   uint64
	turn     turnFlag
}

func newSet(a *app) *cobra.Command {
	var o setOptions
	cmd := &cobra.Command{
		Use:   "set ID",
		Short: "Change a session's title, labels and state",
		Long: `Change a session's title, labels and state document, all in one commit, and print
where it was stored: the change is an event of the session like any other, of
kind "meta".

--state is a JSON merge patch (RFC 7396): members are merged, null removes one, and
anything but an object replaces the whole. --label k= sets an empty value,
--unlabel k removes the label, --title "" clears the title. --expect N changes it
only if the session's last seq is N (exit 4 otherwise).

In a program that hansard turn runs it is written under the turn, as with append;
an exclusive turn of somebody else keeps it out (exit 5).`,
		Example: `  hansard set demo --title "Capitals of Europe" --label owner=ada
  hansard set demo --unlabel owner
  hansard set demo --state '{"step":3,"draft":null}' --expect 12`,
		Args:              arguments(1, "a session id"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := hansard.CheckID(id); err != nil {
				return err
			}
			patch, err := o.patch(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			batch := hansard.Batch{Patch: patch}
			if batch.Turn, err = o.turn.of(a, id); err != nil {
				return err
			}
			if cmd.Flags().Changed("expect") {
				batch.Expect = hansard.At(hansard.Seq(o.expect))
			}
			return a.appendBatch(cmd.Context(), id, &appendOptions{}, batch)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.title, "title", "", "the new title, a `TEXT`; \"\" clears it")
	flags.StringArrayVar(&o.labels, "label", nil, "set a label, `k=v`; may be repeated")
	flags.StringArrayVar(&o.unlabels, "unlabel", nil, "remove the label `k`; may be repeated")
	flags.StringVar(&o.state, "state", "", "a `JSON` merge patch for the state document")
	flags.Uint64Var(&o.expect, "expect", 0, "change it only if the last seq is `N`")
	o.turn.add(a, cmd)
	return cmd
}

// patch is what the flags that were given ask for.
func (o *setOptions) patch(given func(flag string) bool) (*hansard.Patch, error) {
	if !given("title") && !given("label") && !given("unlabel") && !given("state") {
		return nil, &usageError{"there is nothing to set", "give --title, --label, --unlabel or --state"}
	}
	p := &hansard.Patch{}
	if given("title") {
		p.Title = &o.title
	}
	if given("state") {
		if o.state == "" {
			return nil, &hansard.InvalidError{Field: "state", Reason: "it is empty; the JSON value for nothing is null"}
		}
		p.State = json.RawMessage(o.state)
	}
	labels, err := parseLabels(o.labels)
	if err != nil {
		return nil, err
	}
	if len(labels)+len(o.unlabels) > 0 {
		p.Labels = make(map[string]*string, len(labels)+len(o.unlabels))
	}
	for k, v := range labels {
		p.Labels[k] = &v
	}
	for _, k := range o.unlabels {
		if _, both := labels[k]; both {
			return nil, &usageError{fmt.Sprintf("label %q is both set and removed", k), ""}
		}
		p.Labels[k] = nil
	}
	return p, nil
}
