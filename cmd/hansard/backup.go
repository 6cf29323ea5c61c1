package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/backup"
)

func newBackup(a *app) *cobra.Command {
	var since string
	var check bool
	cmd := &cobra.Command{
		Use:   "backup DEST | backup --check FILE…",
		Short: "Write all sessions to one file, while the store is in use",
		Long: `Write the sessions of a store to one file: events, turns, ids, idempotency keys,
metadata, attachments and deleted ids, as copy carries them. The store may be in use:
everything that was acknowledged before the backup began is in it, and each session
ends with a whole batch. The store may be of any kind, and so may the one that restore
brings it back to. On a server the token needs the right read for the whole store.

DEST is a file that does not exist yet, or a directory, where the backup gets a name
with the time, or - for standard output. The file has its name only when it is whole
and durable.

--since makes an increment, with only what is new since an earlier backup of the store:
a file, or a directory, whose newest backup it takes; if that has none, the backup is a
full one. To restore, all of them are needed, from the full one on.

A session that is damaged is backed up as far as it can be read, and reported (exit 1).

--check reads backups from the first byte to the last: checksums, every event that the
manifest has, every attachment that an event names. It needs no store. If there are
several files, each has to be an increment of the one before; a directory stands for its
newest backup and all that it needs.`,
		Example: `  hansard backup monday.hbk
  hansard backup tuesday.hbk --since monday.hbk
  hansard backup backups/ --since backups/
  hansard backup --check backups/
  hansard backup - | gpg --encrypt -r ops > store.hbk.gpg`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if check {
				return a.checkBackups(cmd.Context(), args)
			}
			run := &backupRun{app: a, dest: args[0], since: since}
			return a.withExporter(func(s hansard.Exporter) error { return run.run(cmd.Context(), s) })
		},
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case check && cmd.Flags().Changed("since"):
			return &usageError{"--check and --since exclude each other", "give one of them"}
		case check && len(args) > 0:
			return nil
		case check:
			return arguments(1, "a backup")(cmd, args)
		}
		return arguments(1, "a destination")(cmd, args)
	}
	cmd.Flags().StringVar(&since, "since", "", "only what is new since the backup in this `FILE`, or since the newest in this directory")
	cmd.Flags().BoolVar(&check, "check", false, "read backups and report whether they are whole")
	return cmd
}

// withExporter opens the store to read everything in it.
func (a *app) withExporter(fn func(hansard.Exporter) error) error {
	return a.withStore(reading, func(s hansard.Store) error {
		e, ok := s.(hansard.Exporter)
		if !ok {
			return fmt.Errorf("this kind of store can't be backed up: %w", hansard.ErrUnsupported)
		}
		return fn(e)
	})
}

// backupRun is one backup under way.
type backupRun struct {
	*app
	dest, since string
	progress    *progress
	failed      int
}

func (r *backupRun) run(ctx context.Context, s hansard.Exporter) error {
	r.progress = newProgress(r.stderr)
	defer r.progress.done()
	base, err := r.base(ctx, s)
	if err != nil {
		return err
	}
	if base != nil {
		defer base.Close()
	}
	var w backup.Written
	write := func(out io.Writer) (err error) {
		w, err = backup.Write(ctx, s, out, backup.WriteOptions{
			Base: base, Program: "hansard " + buildVersion().Version, SpoolDir: r.spoolDir(), Report: r.report, Progress: func(t backup.Totals) {
				r.progress.show(func() string {
					return fmt.Sprintf("%s, %s, %s", plural(t.Sessions, "session"), plural(t.Events, "event"), humanBytes(t.Bytes))
				})
			}})
		return err
	}
	if r.dest == "-" {
		if isTerminal(r.stdout) {
			return &usageError{"a backup is not for a terminal", "name a file, or send it to another program"}
		}
		err = write(r.stdout)
	} else {
		err = r.save(write)
	}
	r.progress.done()
	if err != nil {
		return orInterrupted(err, "there is no backup")
	}
	return r.finish(&w)
}

// spoolDir is a directory for a temporary file: where the backup goes there is room.
func (r *backupRun) spoolDir() string {
	if r.dest == "-" {
		return ""
	}
	return filepath.Dir(r.dest)
}

// save writes to the file that was named, or to a new one in the directory that was
// named.
func (r *backupRun) save(write func(io.Writer) error) error {
	info, err := os.Stat(r.dest)
	if err != nil || !info.IsDir() {
		err := backup.Save(r.dest, write)
		if errors.Is(err, fs.ErrExist) {
			return &hinted{fmt.Errorf("%s is there already", r.dest), "a backup replaces nothing: give it another name, or name a directory"}
		}
		return err
	}
	dir := r.dest
	for n := 1; ; n++ {
		name := "hansard-" + r.now().UTC().Format("20060102T150405Z")
		if n > 1 {
			name += fmt.Sprintf("-%d", n)
		}
		r.dest = filepath.Join(dir, name+backup.Suffix)
		if _, err := os.Lstat(r.dest); err == nil {
			continue
		}
		return backup.Save(r.dest, write)
	}
}

// base opens the backup of --since; nil makes a full one.
func (r *backupRun) base(ctx context.Context, s hansard.Exporter) (*backup.File, error) {
	if r.since == "" {
		return nil, nil
	}
	info, err := os.Stat(r.since)
	if err != nil {
		return nil, fmt.Errorf("--since: %w", err)
	}
	path := r.since
	if info.IsDir() {
		identity := ""
		if s, ok := s.(hansard.Identified); ok {
			if identity, err = s.Identity(ctx); err != nil {
				return nil, err
			}
		}
		chain, broken, err := backup.Newest(r.since, identity)
		r.warnBroken(broken)
		if err != nil {
			return nil, fmt.Errorf("--since: %w", err)
		}
		if len(chain) == 0 {
			fmt.Fprintf(r.stderr, "there is no backup of this store in %s yet: this is a full one\n", escapeText(r.since))
			return nil, nil
		}
		path = chain[len(chain)-1]
	}
	f, err := backup.OpenFile(path)
	if err != nil {
		return nil, fmt.Errorf("--since: %w", err)
	}
	return f, nil
}

// report names a session that could not be backed up completely. Not on standard
// output, which may be the backup.
func (r *backupRun) report(id hansard.SessionID, err error) {
	r.failed++
	r.progress.done()
	fmt.Fprintf(r.stderr, "%s  NOT WHOLE: %s\n", escapeLine(string(id)), escapeLine(err.Error()))
}

func (r *backupRun) finish(w *backup.Written) error {
	var err error
	switch {
	case r.dest == "-":
	case r.json:
		err = r.out.jsonLine(struct {
			File string `json:"file"`
			*backup.Written
		}{r.dest, w})
	default:
		_, err = fmt.Fprintf(r.out, "%s  %s\n", escapeLine(r.dest), describeBackup(w.Number, &w.Totals, w.Size))
	}
	if err == nil && r.failed > 0 {
		err = &hinted{fmt.Errorf("%s not whole in the backup, the others are", plural(r.failed, "session")), "see what is wrong with: " + r.again("verify")}
	}
	return err
}

// describeBackup is a backup in a few words.
func describeBackup(number int, t *backup.Totals, size int64) string {
	text := plural(t.Sessions, "session")
	if number > 0 {
		text = fmt.Sprintf("increment %d: %s of %s changed", number, humanCount(t.Changed), plural(t.Sessions, "session"))
	}
	if t.Deleted > 0 {
		text += fmt.Sprintf(" and %s deleted", humanCount(t.Deleted))
	}
	text += ", " + plural(t.Events, "event")
	if t.Attachments > 0 {
		text += ", " + plural(t.Attachments, "attachment")
	}
	return text + ", " + humanBytes(size)
}

// backupPaths are the files that arguments name: a directory stands for its newest
// backup and all those it needs.
func (a *app) backupPaths(args []string) ([]string, error) {
	if len(args) != 1 {
		return args, nil
	}
	if info, err := os.Stat(args[0]); err != nil || !info.IsDir() {
		return args, nil
	}
	paths, broken, err := backup.Newest(args[0], "")
	a.warnBroken(broken)
	if err == nil && len(paths) == 0 {
		err = &hinted{fmt.Errorf("there is no backup in %s", args[0]), "a backup's name ends in " + backup.Suffix}
	}
	return paths, err
}

// warnBroken names files that were skipped: one of them may be the newest backup.
func (a *app) warnBroken(broken []error) {
	for _, err := range broken {
		a.warn("a file was passed over", err)
	}
}

func (a *app) checkBackups(ctx context.Context, args []string) error {
	paths, err := a.backupPaths(args)
	if err != nil {
		return err
	}
	var base *backup.File
	if len(paths) > 1 {
		chain, err := backup.Open(paths...) // checks that there is no gap
		if err != nil {
			return err
		}
		defer chain.Close()
	}
	for _, path := range paths {
		f, err := backup.OpenFile(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := a.checkBackup(ctx, f, base); err != nil {
			return err
		}
		base = f
	}
	return nil
}

func (a *app) checkBackup(ctx context.Context, f, base *backup.File) error {
	line := newProgress(a.stderr)
	err := f.Check(ctx, base, func(p backup.Progress) {
		line.show(func() string {
			return fmt.Sprintf("%s  %s of %s read", filepath.Base(f.Path()), humanBytes(p.Bytes), humanBytes(p.Size))
		})
	})
	line.done()
	if err != nil {
		return orInterrupted(err, "the backup was not read to its end")
	}
	t := f.Totals()
	if a.json {
		return a.out.jsonLine(struct {
			File   string `json:"file"`
			Number int    `json:"number"`
			Digest string `json:"digest"`
			Base   string `json:"base,omitempty"`
			Size   int64  `json:"size"`
			backup.Totals
		}{f.Path(), f.Number(), f.Digest(), f.Base(), f.Size(), t})
	}
	text := "is whole"
	if f.Base() != "" && base == nil {
		text = "is whole, by itself"
	}
	if t.Damaged > 0 {
		text += fmt.Sprintf("; %s damaged when it was made", plural(t.Damaged, "session"))
	}
	_, err = fmt.Fprintf(a.out, "%s  %s (%s)\n", escapeLine(f.Path()), text, describeBackup(f.Number(), &t, f.Size()))
	return err
}
