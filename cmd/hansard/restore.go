package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/backup"
)

func newRestore(a *app) *cobra.Command {
	var only []string
	var salvage bool
	cmd := &cobra.Command{
		Use:   "restore SRC…",
		Short: "Restore the sessions of a backup to a store",
		Long: `Restore the sessions of a backup to a store of any kind, which is created if it does
not exist. SRC is a full backup followed by its increments, in order, or a directory,
which stands for its newest backup and all that it needs. A gap is refused.

Nothing in the store is overwritten or deleted: what it lacks is added, what it has is
compared. A session that differs there, or was deleted there, is reported and left as it
is (exit 1); one that only has more events there is fine. A session that is deleted in
the backup is marked deleted in the store only if the store has no such session.

It may be interrupted and run again: it continues where it stopped.

--session restores these sessions only. --salvage is for a backup that is damaged or cut
off: it brings back what can be read, and names what can't.

On a server the token needs the right admin.`,
		Example: `  hansard restore monday.hbk tuesday.hbk --store ./restored
  hansard restore backups/ --store postgres://user@host/hansard
  hansard restore backups/ --session demo
  hansard restore half.hbk --salvage --store ./rescued`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			return arguments(1, "a backup")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := checkIDs(only)
			if err != nil {
				return err
			}
			paths, err := a.backupPaths(args)
			if err != nil && !salvage {
				return err
			} else if err != nil {
				return &hinted{err, "with --salvage name the files, in order"}
			}
			open := backup.Open
			if salvage {
				open = backup.OpenSalvage
			}
			chain, err := open(paths...)
			if err != nil {
				return err
			}
			defer chain.Close()
			return a.withStore(creating, func(s hansard.Store) error {
				dst, ok := s.(hansard.Importer)
				if !ok {
					return fmt.Errorf("nothing can be restored to this kind of store: %w", hansard.ErrUnsupported)
				}
				run := &restoreRun{app: a, progress: newProgress(a.stderr), sessions: map[hansard.SessionID]bool{}}
				defer run.progress.done()
				return run.run(cmd.Context(), chain, dst, ids)
			})
		},
	}
	cmd.Flags().StringArrayVar(&only, "session", nil, "only the session with this `ID`; may be repeated")
	cmd.Flags().BoolVar(&salvage, "salvage", false, "bring back what can be read of a damaged backup")
	return cmd
}

// restoreRun prints what was restored.
type restoreRun struct {
	*app
	progress *progress
	// sessions are those named by --session that the backup has; without it they are
	// only counted.
	sessions map[hansard.SessionID]bool
	done     int
	deleted  int
	added    hansard.Seq
	failed   int
	printErr error
}

func (r *restoreRun) run(ctx context.Context, chain *backup.Chain, dst hansard.Importer, ids []hansard.SessionID) error {
	err := chain.Restore(ctx, dst, backup.RestoreOptions{
		Sessions: ids,
		Report: func(got backup.Restored) {
			if len(ids) > 0 {
				r.sessions[got.Session] = true
			}
			r.take(got)
		},
		Progress: func(p backup.Progress) {
			r.progress.show(func() string {
				return fmt.Sprintf("%s of %s read, %s, %s added", humanBytes(p.Bytes), humanBytes(p.Size), plural(r.done, "session"), plural(r.added, "event"))
			})
		},
	})
	r.progress.done()
	if err == nil {
		err = r.printErr
	}
	if err != nil && ctx.Err() != nil {
		return orInterrupted(ctx.Err(), fmt.Sprintf("%s added; run it again to go on", plural(r.added, "event")))
	}
	for _, id := range ids {
		if err == nil && !r.sessions[id] {
			return &hinted{fmt.Errorf("%w in the backup: %s", hansard.ErrNotFound, id), "without --session all sessions are restored"}
		}
	}
	return r.finish(err)
}

// restoredJSON is a session in the output of restore.
type restoredJSON struct {
	backup.Restored
	Whole bool   `json:"whole"`
	Error string `json:"error,omitempty"`
}

func (r *restoreRun) take(got backup.Restored) {
	if !got.GoesOn {
		r.done++
	}
	r.added += got.Added
	if got.Deleted {
		r.deleted++
	}
	line := restoredJSON{Restored: got, Whole: got.Err == nil && got.Damage == ""}
	if got.Err != nil {
		r.failed++
		line.Error = got.Err.Error()
	}
	if r.printErr != nil {
		return
	}
	switch {
	case r.json:
		r.printErr = r.out.jsonLine(line)
	case got.Err != nil:
		_, r.printErr = fmt.Fprintf(r.out, "%s  NOT RESTORED: %s\n", escapeLine(string(got.Session)), escapeLine(got.Err.Error()))
	case got.Damage != "":
		_, r.printErr = fmt.Fprintf(r.out, "%s  restored as far as the backup has it: %s\n", escapeLine(string(got.Session)), escapeLine(got.Damage))
	}
}

func (r *restoreRun) finish(err error) error {
	if !r.json {
		text := plural(r.done-r.deleted, "session")
		if r.deleted > 0 {
			text += fmt.Sprintf(" and %s deleted", humanCount(r.deleted))
		}
		fmt.Fprintf(r.out, "%s, %s added\n", text, plural(r.added, "event"))
	}
	if err != nil {
		return err
	}
	if r.failed > 0 {
		return &hinted{fmt.Errorf("%s not restored: the store has something else", plural(r.failed, "session")),
			"they are as they were; to have them as in the backup, restore to another store with --session ID"}
	}
	return nil
}
