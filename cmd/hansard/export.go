package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/exporter"
)

func newExport(a *app) *cobra.Command {
	var format, output string
	cmd := &cobra.Command{
		Use:   "export ID…",
		Short: "Write sessions to files, to keep, to read or for other tools",
		Long: `Write sessions to files, or to standard output. A terminal shows control characters
as text.

  jsonl         everything: events with ids, times, turns and keys, metadata,
                attachments, and a checksum; hansard import gives the same session back
  md, html      for people; the page needs no script and no other file
  openai,       messages for programs that talk to these APIs
  anthropic
  claude        a file for claude --resume: put it into ~/.claude/projects/DIRECTORY
  codex         a rollout for codex resume: put it into ~/.codex/sessions
  cleveragents  an export in the format of cleveragents, with its checksum

Sessions that were imported from Claude Code or Codex are written with their original
records, byte for byte, forks including the records they share; a fork that was made
here has a UUID of its own. With several sessions, or if -o names a directory, each gets
a file of its own there; a file that exists is not overwritten. With several sessions,
one that can't be exported is reported and the others still are; the exit code is that
of the first that failed.`,
		Example: `  hansard export demo -o demo.jsonl
  hansard export demo --format html -o demo.html
  hansard export demo other --format md -o ./out/`,
		Args:              someIDs,
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := checkIDs(args)
			if err != nil {
				return err
			}
			f, ok := exporter.Find(format)
			if !ok {
				return &usageError{fmt.Sprintf("there is no format %q", format), "the formats are " + strings.Join(exportNames(), ", ")}
			}
			if output == "-" {
				output = ""
			}
			if output == "" && len(ids) > 1 && f.Name != "jsonl" {
				return &usageError{"several sessions need a directory", "name one with -o; only jsonl takes them all in one stream"}
			}
			return a.withStore(reading, func(s hansard.Store) error { return a.export(cmd.Context(), s, f, ids, output) })
		},
	}
	cmd.Flags().StringVar(&format, "format", "jsonl", "the `FORMAT`: "+strings.Join(exportNames(), ", "))
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to a new `FILE`, or into a directory; - is standard output")
	return cmd
}

func exportNames() (names []string) {
	for _, f := range exporter.Formats() {
		names = append(names, f.Name)
	}
	return names
}

func (a *app) export(ctx context.Context, s hansard.Store, f exporter.Format, ids []hansard.SessionID, output string) error {
	dir := output != "" && (len(ids) > 1 || strings.HasSuffix(output, "/") || isDir(output))
	if dir {
		if err := os.MkdirAll(output, 0o700); err != nil {
			return err
		}
	}
	v := &several{app: a, many: len(ids) > 1}
	for _, id := range ids {
		a.session = string(id)
		path := output
		if dir {
			info, err := s.Stat(ctx, id)
			if err != nil {
				if err := v.failed(ctx, id, err); err != nil {
					return err
				}
				continue
			}
			path = filepath.Join(output, f.FileName(info))
		}
		if err := a.exportOne(ctx, s, f, id, path); err != nil {
			if err := v.failed(ctx, id, err); err != nil {
				return err
			}
		}
	}
	return v.outcome()
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// exportOne writes one session. A file that could not be completed is removed.
func (a *app) exportOne(ctx context.Context, s hansard.Store, f exporter.Format, id hansard.SessionID, path string) error {
	if path == "" {
		return a.out.content(func(w io.Writer) error { return f.Write(ctx, s, id, w) })
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return &hinted{err, "an export replaces nothing: name another file or directory, or remove that file"}
	}
	if err != nil {
		return err
	}
	err = f.Write(ctx, s, id, file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	if a.json {
		return a.out.jsonLine(map[string]any{"session": id, "format": f.Name, "file": path})
	}
	_, err = fmt.Fprintf(a.out, "%s  %s\n", escapeLine(string(id)), escapeLine(path))
	return err
}
