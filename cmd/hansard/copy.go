package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/client"
	"hansard/filestore"
)

func newCopy(a *app) *cobra.Command {
	var toToken string
	cmd := &cobra.Command{
		Use:   "copy SRC DST",
		Short: "Copy the sessions of one store to another",
		Long: `Copy all sessions of one store to another: events with their seqs and times, turns,
idempotency keys, metadata, deleted ids. Stores are named as for --store; the
destination is created if it does not exist. Everything is compared at the end.

It may be interrupted and run again: what is there already is compared and not copied
again. Sessions that are only at the destination are left alone; one that got events of
its own there, or began differently, is reported and left as it is (exit 1). What is
appended to the source during a copy may need another run: stop the writers before the
last one.

Either may be a server: the token in HANSARD_TOKEN needs the right read at the source,
admin at the destination. --to-token-from FILE is for a destination that has a token of
its own.`,
		Example: `  hansard copy ./sessions postgres://user@host/hansard
  hansard copy postgres://user@host/hansard ./backup --json
  hansard copy http://127.0.0.1:4267 ./backup`,
		Args: arguments(2, "a source", "a destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.storeSet {
				return &usageError{"copy takes no --store: it copies from SRC to DST", "write hansard copy SRC DST"}
			}
			for _, spec := range args {
				if err := checkShown("the address", spec); err != nil {
					return err
				}
			}
			return a.withBoth(args[0], args[1], toToken, func(src hansard.Exporter, dst hansard.Importer) error {
				run := &copyRun{app: a, progress: newProgress(a.stderr)}
				defer run.progress.done()
				for c, err := range hansard.Copy(cmd.Context(), src, dst) {
					if err != nil {
						return err
					}
					if err := run.take(c); err != nil {
						return err
					}
				}
				return run.finish()
			})
		},
	}
	cmd.Flags().StringVar(&toToken, "to-token-from", "", "the token for the destination, from this `FILE`")
	return cmd
}

// withBoth opens a source and a destination, runs fn and closes them.
func (a *app) withBoth(from, to, toToken string, fn func(hansard.Exporter, hansard.Importer) error) (err error) {
	src, err := a.openCopied(from, "", "nothing was copied: see whether its name is right; the source comes first, then the destination",
		&filestore.Options{ReadOnly: true, MustExist: true, AllowNetwork: a.allowNetwork, LockWait: a.lockWait})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	dst, err := a.openCopied(to, toToken, "its user may not make the tables: run hansard migrate as their owner", &filestore.Options{AllowNetwork: a.allowNetwork, LockWait: a.lockWait})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	exporter, ok := src.(hansard.Exporter)
	if !ok {
		return notCopied(from, "from")
	}
	importer, ok := dst.(hansard.Importer)
	if !ok {
		return notCopied(to, "to")
	}
	return fn(exporter, importer)
}

// openCopied opens one end, with the token from a file if it has its own.
func (a *app) openCopied(spec, tokenFrom, missing string, o *filestore.Options) (hansard.Store, error) {
	letGo := a.stop.hold()
	defer letGo(nil)
	if tokenFrom != "" {
		token, err := readToken(tokenFrom)
		if err != nil {
			return nil, fmt.Errorf("--to-token-from: %w", err)
		}
		return client.New(spec, &client.Options{Token: token})
	}
	s, err := a.openStore(spec, o)
	if errors.Is(err, errNoStore) {
		return nil, &noStoreError{shownStore(spec), missing}
	}
	return s, err
}

func notCopied(spec, way string) error {
	return &hinted{fmt.Errorf("%s can't be copied %s: %w", shownStore(spec), way, hansard.ErrUnsupported), "run copy where the store is kept"}
}

// copyRun prints what was copied.
type copyRun struct {
	*app
	progress *progress
	sessions int
	added    hansard.Seq
	failed   int
}

// copiedJSON is a session in the output of copy.
type copiedJSON struct {
	hansard.Copied
	Same  bool   `json:"same"`
	Error string `json:"error,omitempty"`
}

func (r *copyRun) take(c hansard.Copied) error {
	r.sessions++
	r.added += c.Added
	r.progress.show(func() string {
		return fmt.Sprintf("%s, %s copied", plural(r.sessions, "session"), plural(r.added, "event"))
	})
	line := copiedJSON{Copied: c, Same: c.Err == nil}
	if c.Err != nil {
		r.failed++
		line.Error = c.Err.Error()
	}
	if r.json {
		return r.out.jsonLine(line)
	}
	if c.Err != nil {
		_, err := fmt.Fprintf(r.out, "%s  NOT THE SAME: %s\n", escapeLine(string(c.Session)), escapeLine(c.Err.Error()))
		return err
	}
	return nil
}

func (r *copyRun) finish() error {
	if !r.json {
		fmt.Fprintf(r.out, "%s, %s copied; %s the same at both ends\n", plural(r.sessions, "session"), plural(r.added, "event"), plural(r.sessions-r.failed, "session"))
	}
	if r.failed > 0 {
		return &hinted{fmt.Errorf("%s not the same at both ends", plural(r.failed, "session")),
			"look at them with stat at both ends; run copy again if the source is being written to"}
	}
	return nil
}
