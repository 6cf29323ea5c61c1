package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"hansard"
)

func newVerify(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "verify [ID]",
		Short: "Examine a session, or the whole store, for damage",
		Long: `Examine every line of one session, or of all sessions and what protects them: the
checksums, the chain from line to line, the journal, the names. The history of a fork
is compared with its parent's. It changes nothing and takes no lock, so it may run
while others write.

Damage is reported with its location (exit 6), and how many events before it are safe.
People see what is wrong and a summary, which counts deleted sessions apart; --json
prints one finding per line, also for what is sound, with level (ok, note, unread,
damage), session, file, offset, line, events and message. What could not be examined,
for example for lack of rights, is unread (exit 1).`,
		Example: `  hansard verify
  hansard verify demo
  hansard verify --json | jq 'select(.level=="damage")'`,
		Args:              arguments(0, "a session id"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var id hansard.SessionID
			if len(args) > 0 {
				id = hansard.SessionID(args[0])
				a.session = args[0]
				if err := hansard.CheckID(id); err != nil {
					return err
				}
			}
			return a.withChecker(reading, func(c hansard.Checker) error {
				v := &verifyRun{app: a, single: id != "", progress: newProgress(a.stderr)}
				defer v.progress.done()
				for f, err := range c.Verify(cmd.Context(), id) {
					if err != nil {
						return err
					}
					if err := v.take(f); err != nil {
						return err
					}
				}
				return v.finish()
			})
		},
	}
}

// withChecker is withStore for stores that can be examined.
func (a *app) withChecker(want access, fn func(hansard.Checker) error) error {
	return a.withStore(want, func(s hansard.Store) error {
		c, ok := s.(hansard.Checker)
		if !ok {
			return &hinted{fmt.Errorf("this kind of store can't be examined: %w", hansard.ErrUnsupported), "examine it where it is kept"}
		}
		return fn(c)
	})
}

// verifyRun is one verify in progress.
type verifyRun struct {
	app                 *app
	single              bool
	progress            *progress
	sound, notes, harms int
	deleted             int
	unread              int // files that could not be examined
	events              hansard.Seq
	damaged             []hansard.SessionID
	journal             bool // the journal is damaged, and has to be repaired before the sessions
	missing             bool // all logs are missing
	tables              bool // the damage is in a database, not in a file
}

func (v *verifyRun) take(f hansard.Finding) error {
	switch f.Level {
	case hansard.LevelOK:
		switch {
		case f.Session == "": // it is about what protects the sessions
		case f.Message == hansard.FoundDeleted:
			v.deleted++ // ls and stats don't count it either
		default:
			v.sound++
			v.events += f.Events
		}
	case hansard.LevelNote:
		v.notes++
	case hansard.LevelUnread:
		v.unread++
	default:
		v.harms++
		v.journal = v.journal || f.File == "journal"
		v.missing = v.missing || f.File == "sessions"
		v.tables = v.tables || f.File == "" && f.Session != ""
		if f.Session != "" && (len(v.damaged) == 0 || v.damaged[len(v.damaged)-1] != f.Session) {
			v.damaged = append(v.damaged, f.Session)
		}
	}
	v.progress.show(func() string {
		return fmt.Sprintf("%s examined, %s", plural(v.sound+v.deleted+len(v.damaged), "session"), plural(v.events, "event"))
	})
	if v.app.json {
		return v.app.out.jsonLine(f)
	}
	if f.Level == hansard.LevelOK && !v.single {
		return nil
	}
	v.progress.done()
	if err := v.print(f); err != nil {
		return err
	}
	return v.app.out.Flush()
}

// print writes a finding for people: how bad, what, where, why.
func (v *verifyRun) print(f hansard.Finding) error {
	style := map[hansard.Level]string{hansard.LevelDamage: red, hansard.LevelUnread: red, hansard.LevelNote: yellow}[f.Level]
	name := string(f.Session)
	if name == "" {
		name = f.File
	}
	where := ""
	if f.Level == hansard.LevelDamage {
		where = fmt.Sprintf("  (%s safe)", plural(f.Events, "event"))
		if f.File != "" {
			place := f.File
			if f.Line > 0 {
				place += fmt.Sprintf(", line %d", f.Line)
			}
			where = fmt.Sprintf("  (%s, byte %d; %s safe)", place, f.Offset, plural(f.Events, "event"))
		}
		if f.Session == "" {
			where = "" // it is about all of them
		}
	}
	out := v.app.out
	_, err := fmt.Fprintf(out, "%s  %s  %s%s\n", out.paint(style, fmt.Sprintf("%-6s", f.Level)), escapeLine(name), escapeLine(f.Message), escapeLine(where))
	return err
}

func (v *verifyRun) finish() error {
	v.progress.done()
	if !v.app.json && !v.single {
		text := fmt.Sprintf("%s sound, %s", plural(v.sound, "session"), plural(v.events, "event"))
		if v.missing {
			text = "no session was examined"
		}
		if v.deleted > 0 {
			text += fmt.Sprintf(", %d deleted", v.deleted)
		}
		if v.unread > 0 {
			text += fmt.Sprintf(", %d not examined", v.unread)
		}
		if v.notes > 0 {
			text += ", " + plural(v.notes, "note")
		}
		if _, err := fmt.Fprintln(v.app.out, text); err != nil {
			return err
		}
	}
	if v.harms == 0 && v.unread == 0 {
		return nil
	}
	// The findings come before the message about them.
	if err := v.app.out.Flush(); err != nil {
		return err
	}
	if v.harms == 0 {
		return &hinted{fmt.Errorf("%s could not be examined: %w", plural(v.unread, "file"), hansard.ErrUnreadable),
			"what each of them needs is said above; nothing is known to be wrong with them"}
	}
	if v.journal {
		return &hinted{&damageFound{v.harms, len(v.damaged)},
			v.app.again("repair", "--journal") + " makes a sound journal and keeps the old one; nobody else may have the store open"}
	}
	if v.tables {
		return &hinted{&damageFound{v.harms, len(v.damaged)}, "restore the database from a backup; hansard copy takes along what is safe"}
	}
	if len(v.damaged) == 0 {
		return &hinted{&damageFound{v.harms, 0}, "see above for what helps"}
	}
	if len(v.damaged) > 1 {
		return &hinted{&damageFound{v.harms, len(v.damaged)}, v.app.again("repair", "--all") + " makes sound copies and keeps the old bytes"}
	}
	return &hinted{&damageFound{v.harms, len(v.damaged)},
		v.app.again("repair", string(v.damaged[0])) + " makes a sound copy and keeps the old bytes"}
}

// damageFound is the error of a verify that found damage.
type damageFound struct{ findings, sessions int }

func (e *damageFound) Is(target error) bool { return target == hansard.ErrDamaged }
func (e *damageFound) Error() string {
	if e.sessions == 0 {
		return fmt.Sprintf("damage found: %s", plural(e.findings, "finding"))
	}
	return fmt.Sprintf("damage found in %s", plural(e.sessions, "session"))
}
