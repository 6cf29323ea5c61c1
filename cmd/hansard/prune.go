package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"hansard"
)

func newPrune(a *app) *cobra.Command {
	var scrub bool
	var o retireOptions
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove what is left of deleted sessions, or delete old ones",
		Long: `Without --older-than and --keep: remove what is left of deleted sessions. The
store does that automatically, soon after a session is deleted; prune does it now, and
examines every session, including those that came from a backup. It does not ask:
sessions that are not deleted are left alone. Others may use the store meanwhile.

It also removes attachments that no event has named for a day, and uploads that were
given up.

--scrub also removes what would otherwise stay until it is overwritten: in a
directory it puts a new journal in place of the old one, which may have lines of
deleted sessions in its free part, overwrites the old one, and removes the caches
and the journals that repair --journal kept, whatever they hold. Writers wait for a
moment.

On PostgreSQL it removes the remaining rows of deleted sessions. What the database
itself still has of them is left to VACUUM, and --scrub is refused. Through a
server it needs an admin token for the whole store.

Backups, snapshots of the file system and the blocks of a disk are not erased.

With --older-than or --keep: delete sessions that nobody needs any more. Nothing is
deleted without --yes; until then it lists what would be. --older-than selects sessions
that have not changed for that long, --keep N all but the newest N; with both, those
that match both. --label and --archived narrow it down: only sessions with these labels
are selected, and counted for --keep.

Sessions that are pinned (hansard pin), held or damaged are kept. So is one that gets an
event, is pinned, or has its turn taken while it is being deleted: prune takes the turn
exclusively first. Only what arrives for its inbox in the very moment of the deletion is
deleted with it. Deletion is permanent, as with rm.`,
		Example: `  hansard prune
  hansard rm demo --yes && hansard prune --scrub
  hansard prune --json | jq -r .session
  hansard prune --older-than 90d --keep 100
  hansard prune --older-than 30d --archived --label team=a --yes`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.asked(cmd.Flags().Changed) {
				if scrub {
					return &usageError{"--scrub does not go with a rule for sessions", "delete them first, then run: " + a.again("prune", "--scrub")}
				}
				return a.retire(cmd, &o)
			}
			return a.withStore(writing, func(s hansard.Store) error {
				p, ok := s.(hansard.Pruner)
				if !ok {
					return fmt.Errorf("this kind of store can't be pruned: %w", hansard.ErrUnsupported)
				}
				ctx, cancel := forWrite(cmd.Context())
				defer cancel()
				done, err := p.Prune(ctx, scrub)
				if printed := a.printPruned(done, err == nil); err == nil {
					err = printed
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&scrub, "scrub", false, "leave nothing in the journal and the caches either")
	o.add(cmd.Flags())
	return cmd
}

// printPruned says what was done, even if not everything was.
func (a *app) printPruned(done hansard.Pruned, all bool) error {
	if a.json {
		for _, e := range done.Erased {
			if err := a.out.jsonLine(e); err != nil {
				return err
			}
		}
		for _, name := range done.Attachments {
			if err := a.out.jsonLine(map[string]string{"attachment": name}); err != nil {
				return err
			}
		}
		for _, name := range done.Scrubbed {
			if err := a.out.jsonLine(map[string]string{"scrubbed": name}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, e := range done.Erased {
		line := escapeLine(string(e.Session)) + "  erased"
		if e.Bytes > 0 {
			line += "  " + humanBytes(e.Bytes)
		}
		if len(e.Files) > 0 {
			line += ", with " + plural(len(e.Files), "other file")
		}
		if _, err := fmt.Fprintln(a.out, line); err != nil {
			return err
		}
	}
	for _, name := range done.Attachments {
		if _, err := fmt.Fprintf(a.out, "%s  removed: no event names it\n", escapeLine(name)); err != nil {
			return err
		}
	}
	for _, name := range done.Scrubbed {
		if _, err := fmt.Fprintf(a.out, "%s  scrubbed\n", escapeLine(name)); err != nil {
			return err
		}
	}
	if all && len(done.Erased)+len(done.Attachments)+len(done.Scrubbed) == 0 {
		_, err := fmt.Fprintln(a.out, "nothing is left of deleted sessions")
		return err
	}
	return nil
}
