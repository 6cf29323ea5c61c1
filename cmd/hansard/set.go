package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"hansard"
)

// setOptions are the flags of set.
type setOptions struct {
	title    string
	labels   []string
	unlabels []string
	state    string
	stateOps []string
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
anything but an object replaces the whole. --state-op is an operation of JSON Patch
(RFC 6902: add, replace, remove, test), or a list of them, for what a merge patch
can't do, such as setting a member to null; all of them are applied, in order, or
none. A test that fails is exit 4.

--label k= sets an empty value, --unlabel k removes the label, --title "" clears the
title. --expect N changes it only if the session's last seq is N (exit 4 otherwise).

In a program that hansard turn runs it is written under the turn, as with append;
while somebody else holds an exclusive turn it is refused (exit 5).`,
		Example: `  hansard set demo --title "Capitals of Europe" --label owner=ada
  hansard set demo --unlabel owner
  hansard set demo --state '{"step":3,"draft":null}' --expect 12
  hansard set demo --state-op '{"op":"replace","path":"/step","value":null}'`,
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
	flags.StringArrayVar(&o.stateOps, "state-op", nil, "an operation on the state document, `JSON` (RFC 6902); may be repeated")
	flags.Uint64Var(&o.expect, "expect", 0, "change it only if the last seq is `N`")
	o.turn.add(a, cmd)
	return cmd
}

// patch is the patch that the given flags describe.
func (o *setOptions) patch(given func(flag string) bool) (*hansard.Patch, error) {
	if !given("title") && !given("label") && !given("unlabel") && !given("state") && !given("state-op") {
		return nil, &usageError{"there is nothing to set", "give --title, --label, --unlabel, --state or --state-op"}
	}
	if given("state") && given("state-op") {
		return nil, &usageError{"--state and --state-op do not go together", "write the merge patch as operations, or run set twice"}
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
	var err error
	if p.StateOps, err = parseStateOps(o.stateOps); err != nil {
		return nil, err
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

// parseStateOps reads operations on the state, each given alone or in a list.
func parseStateOps(given []string) (ops []hansard.StateOp, err error) {
	for _, text := range given {
		var list []hansard.StateOp
		if strings.HasPrefix(strings.TrimSpace(text), "[") {
			err = json.Unmarshal([]byte(text), &list)
		} else {
			list = make([]hansard.StateOp, 1)
			err = json.Unmarshal([]byte(text), &list[0])
		}
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &syntax):
			return nil, &hansard.InvalidError{Field: "state-op", Reason: fmt.Sprintf("it is not JSON: %v (at byte %d)", err, syntax.Offset)}
		case err != nil:
			return nil, err
		}
		ops = append(ops, list...)
	}
	return ops, nil
}
