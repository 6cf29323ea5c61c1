package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hansard"
)

func newRedact(a *app) *cobra.Command {
	var yes bool
	var reason string
	var turn turnFlag
	cmd := &cobra.Command{
		Use:   "redact ID SEQ…",
		Short: "Remove the content of single events",
		Long: `Remove the content of events: their data and attachments, and the hashes that the
content could be compared with. Seq, time, kind, role, author, id and the change of
metadata that came with an event stay, and an event of kind redaction records who did it
and why.

The command asks first; where there is no terminal to ask on, it needs --yes. When it
returns, the content is no longer in the session. In a directory the free part of the
journal may have it until it is overwritten: hansard prune --scrub does that now.
Backups and copies keep it; hansard copy removes the content from an older copy when it
brings the record of the redaction.

Records of the turn, of forks and of redactions can't be redacted. What is redacted
already is left as it is; if the command was interrupted, run it again.

A session whose turn somebody else holds exclusively is refused (exit 5).`,
		Example: `  hansard redact demo 7 --reason "a password"
  hansard redact demo 7 9-12 --reason "asked by the user" --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) >= 2 {
				return nil
			}
			return arguments(2, "a session id", "the seq of an event")(cmd, args)
		},
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := hansard.CheckID(id); err != nil {
				return err
			}
			seqs, err := parseSeqs(args[1:])
			if err != nil {
				return err
			}
			grant, err := turn.of(a, id)
			if err != nil {
				return err
			}
			if !yes && (!isTerminal(a.stdin) || !isTerminal(a.stderr)) {
				return &usageError{"nothing was redacted: redact asks first, and there is no terminal to ask on",
					"to redact without a question: " + a.again(append([]string{"redact", "--yes"}, args...)...)}
			}
			return a.withStore(writing, func(s hansard.Store) error {
				if !yes {
					fmt.Fprintf(a.stderr, "Remove the content of %s in session %s permanently? [y/N] ", eventsOf(seqs), id)
					if err := a.answerYes(cmd.Context(), "nothing was redacted"); err != nil {
						return err
					}
				}
				return a.redact(cmd.Context(), s, id, hansard.Redaction{Seqs: seqs, Reason: reason, Turn: grant})
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for people: the `REASON` is stored")
	turn.add(a, cmd)
	return cmd
}

func (a *app) redact(ctx context.Context, s hansard.Store, id hansard.SessionID, r hansard.Redaction) error {
	patient, cancel := forWrite(ctx)
	defer cancel()
	receipt, err := s.Redact(patient, id, r)
	if err != nil {
		return orInterrupted(err, "the redaction may be recorded; run it again to finish it")
	}
	switch {
	case a.json:
		return a.out.jsonLine(receipt)
	case receipt.Replayed:
		_, err = fmt.Fprintf(a.out, "%s  redacted before\n", id)
	default:
		_, err = fmt.Fprintf(a.out, "%s  redacted, recorded as event %d\n", id, receipt.First)
	}
	return err
}

// parseSeqs reads seqs and ranges of them, "9-12".
func parseSeqs(args []string) (seqs []hansard.Seq, err error) {
	bad := func(arg string) error {
		return &usageError{fmt.Sprintf("%q is not a seq", arg), "a seq is a number from 1 on, or a range such as 9-12; hansard show prints them"}
	}
	for _, arg := range args {
		first, last, ranged := strings.Cut(arg, "-")
		from, err := strconv.ParseUint(first, 10, 64)
		to := from
		if ranged && err == nil {
			to, err = strconv.ParseUint(last, 10, 64)
		}
		if err != nil || from == 0 || to < from {
			return nil, bad(arg)
		}
		if to-from >= hansard.MaxRedactions {
			return nil, &usageError{fmt.Sprintf("%s are more than %d events", arg, hansard.MaxRedactions), "redact them in several runs"}
		}
		for seq := from; seq <= to; seq++ {
			seqs = append(seqs, hansard.Seq(seq))
		}
	}
	return seqs, nil
}

// eventsOf names events in a question.
func eventsOf(seqs []hansard.Seq) string {
	if len(seqs) == 1 {
		return fmt.Sprintf("event %d", seqs[0])
	}
	return fmt.Sprintf("%d events, %d to %d,", len(seqs), seqs[0], seqs[len(seqs)-1])
}
