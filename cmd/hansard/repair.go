package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"hansard"
)

func newRepair(a *app) *cobra.Command {
	var journal, all bool
	cmd := &cobra.Command{
		Use:   "repair ID | repair --all | repair --journal",
		Short: "Make a sound copy of a damaged session, of all of them, or of a damaged journal",
		Long: `Make a sound copy of a damaged session, in its place, so that it can be appended to
again. Every event that can still be read stays, with its seq; where one is lost, an
event of kind lost says so. Nothing is deleted: the old bytes are kept in the store, and
the command says where. A session that is sound is left alone.

With --all it looks for damage as verify does and repairs every session that has some.
One that can't be repaired is reported, and the others are repaired all the same.

With --journal it repairs what protects all sessions: when the journal itself is
damaged the store can only be read. What is still whole in it is written to the
sessions it belongs to, where it is not there already; what can't follow because
something before it is lost is set aside, and that session is reported (exit 6) to
be repaired next. Nobody else may have the store open. Through a server (--store
http://…) the server does it, if it is the only one that has it open.

Look first with verify: it says what is damaged and how much is safe.`,
		Example: `  hansard verify demo
  hansard repair demo
  hansard repair --all
  hansard repair --journal`,
		Args: func(cmd *cobra.Command, args []string) error {
			if journal || all {
				if len(args) > 0 || journal && all {
					return &usageError{"repair takes a session, --all or --journal, not more than one of them", "repair the journal first"}
				}
				return nil
			}
			return arguments(1, "a session id, --all or --journal")(cmd, args)
		},
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case journal:
				return a.repairJournal(cmd)
			case all:
				return a.repairAll(cmd)
			}
			return a.repairSession(cmd, args[0])
		},
	}
	cmd.Flags().BoolVar(&journal, "journal", false, "repair the store's journal")
	cmd.Flags().BoolVar(&all, "all", false, "repair every damaged session")
	return cmd
}

func (a *app) repairSession(cmd *cobra.Command, arg string) error {
	id := hansard.SessionID(arg)
	a.session = arg
	if err := hansard.CheckID(id); err != nil {
		return err
	}
	return a.withChecker(writing, func(c hansard.Checker) error {
		ctx, cancel := forWrite(cmd.Context())
		defer cancel()
		r, err := c.Repair(ctx, id)
		if err != nil {
			return err
		}
		if a.json {
			return a.out.jsonLine(r)
		}
		return a.printRepaired(r)
	})
}

func (a *app) printRepaired(r hansard.Repaired) error {
	if !r.Changed {
		_, err := fmt.Fprintf(a.out, "%s is sound; nothing was changed\n", escapeLine(string(r.Session)))
		return err
	}
	lost := ""
	if r.Lost > 0 {
		lost = fmt.Sprintf(", of which %d can't be read any more", r.Lost)
	}
	kept := "; there were no old bytes to keep"
	if r.Kept != "" {
		kept = fmt.Sprintf("; the old log is kept in %s of the store, %s of it only there", escapeLine(r.Kept), humanBytes(r.DroppedBytes))
	}
	_, err := fmt.Fprintf(a.out, "%s has %s again%s%s\n", escapeLine(string(r.Session)), plural(r.Events, "event"), lost, kept)
	return err
}

func (a *app) repairJournal(cmd *cobra.Command) error {
	return a.withStore(writing, func(s hansard.Store) error {
		j, ok := s.(hansard.JournalRepairer)
		if !ok {
			return &hinted{fmt.Errorf("this kind of store has no journal to repair: %w", hansard.ErrUnsupported), "repair it where it is kept"}
		}
		ctx, cancel := forWrite(cmd.Context())
		defer cancel()
		r, err := j.RepairJournal(ctx)
		if err != nil {
			return err
		}
		if a.json {
			err = a.out.jsonLine(r)
		} else {
			err = a.printJournalRepaired(r)
		}
		if err != nil {
			return err
		}
		return a.stillDamaged(r)
	})
}

func (a *app) printJournalRepaired(r hansard.JournalRepaired) error {
	if !r.Changed {
		_, err := fmt.Fprintln(a.out, "the journal is sound; nothing was changed")
		return err
	}
	fmt.Fprintf(a.out, "the journal was damaged: %s\nit is sound again; the old one is kept in %s of the store\n", escapeLine(r.Reason), escapeLine(r.Kept))
	for _, s := range r.Sessions {
		fmt.Fprintf(a.out, "%s  %s", escapeLine(string(s.Session)), plural(s.Events, "event"))
		if s.Restored > 0 {
			fmt.Fprintf(a.out, ", %d of them restored from the journal", s.Restored)
		}
		for _, name := range s.Aside {
			fmt.Fprintf(a.out, ", set aside: %s", escapeLine(name))
		}
		if s.MissingFirst > 0 {
			fmt.Fprintf(a.out, ", missing: seq %d to %d", s.MissingFirst, s.MissingLast)
		}
		fmt.Fprintln(a.out)
	}
	if r.UnreadableBytes > 0 {
		fmt.Fprintf(a.out, "%s of the old journal no longer say which session they belong to; what their logs had already is not lost\n",
			humanBytes(r.UnreadableBytes))
	}
	return a.out.Flush()
}

// stillDamaged is the error of a journal repair after which sessions still
// need repair.
func (a *app) stillDamaged(r hansard.JournalRepaired) error {
	var damaged []hansard.SessionID
	for _, s := range r.Sessions {
		if len(s.Aside) > 0 {
			damaged = append(damaged, s.Session)
		}
	}
	if len(damaged) == 0 {
		return nil
	}
	if err := a.out.Flush(); err != nil {
		return err
	}
	which := string(damaged[0])
	if len(damaged) > 1 {
		which = "--all"
	}
	return &hinted{&damageFound{len(damaged), len(damaged)},
		a.again("repair", which) + " takes back what was set aside, as far as it follows"}
}
