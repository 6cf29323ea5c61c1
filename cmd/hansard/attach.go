package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"hansard"
)

func newAttach(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach ID FILE…",
		Short: "Keep files beside a session",
		Long: `Keep files beside a session's log: pictures, long outputs. Each is stored once,
however often it is attached, and named by its digest, which is printed. Events name
them: append --attach does both at once.

An attachment belongs to its session and is deleted with it. One that no event has
named for a day may be removed by prune. FILE may be - for standard input.`,
		Example: `  hansard attach demo screenshot.png
  hansard attach demo report.pdf data.csv --json
  make 2>&1 | hansard attach demo -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) >= 2 {
				return nil
			}
			return arguments(2, "a session id", "a file")(cmd, args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault // files
			}
			return a.completeIDs(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := hansard.CheckID(id); err != nil {
				return err
			}
			return a.withStore(writing, func(s hansard.Store) error {
				for _, file := range args[1:] {
					attached, err := a.attach(cmd.Context(), s, id, file)
					if err != nil {
						return err
					}
					if a.json {
						err = a.out.jsonLine(attached)
					} else {
						_, err = fmt.Fprintf(a.out, "%s  %s  %s\n", attached.Digest, humanBytes(attached.Size), escapeLine(file))
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	return cmd
}

// attach attaches a file, and returns its attachment.
func (a *app) attach(ctx context.Context, s hansard.Store, id hansard.SessionID, file string) (hansard.Attachment, error) {
	in, err := a.openInput(file)
	if err != nil {
		return hansard.Attachment{}, err
	}
	defer in.Close()
	content, leave := until(ctx, in)
	defer leave()
	head := make([]byte, 512)
	n, err := io.ReadFull(content, head)
	if ctx.Err() != nil {
		return hansard.Attachment{}, orInterrupted(err, escapeLine(file)+" was not attached")
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return hansard.Attachment{}, fmt.Errorf("%s: %w", escapeLine(file), err)
	}
	attached, err := s.Attach(ctx, id, io.MultiReader(&sliceReader{head[:n]}, content))
	if err != nil {
		return hansard.Attachment{}, orInterrupted(err, escapeLine(file)+" was not attached")
	}
	if file != "-" {
		attached.Name = filepath.Base(file)
	}
	if attached.MediaType = mime.TypeByExtension(filepath.Ext(file)); attached.MediaType == "" {
		attached.MediaType = http.DetectContentType(head[:n])
	}
	attached.MediaType, _, _ = mime.ParseMediaType(attached.MediaType)
	return attached, nil
}

// until reads what in has until a context ends: a pipe or a terminal may have nothing for ever,
// and a signal has to end the wait for it. leave must be called.
func until(ctx context.Context, in io.Reader) (out io.Reader, leave func()) {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err) // nil is io.EOF
	}()
	unhook := context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	return r, func() { unhook(); r.Close() }
}

// sliceReader reads bytes once.
type sliceReader struct{ rest []byte }

func (r *sliceReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func newGet(a *app) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "get ID DIGEST",
		Short: "Get a file that was attached to a session",
		Long: `Get an attachment of a session by its digest, sha256:…, or by a unique prefix of its
hex digits. It goes to standard output, or with -o to a file, which must not exist yet.
A terminal shows control characters as text.
Damage on the disk is noticed at the end: exit 6, and no file is left.

Without DIGEST it lists the attachments.`,
		Example: `  hansard get demo
  hansard get demo sha256:9f86d081884c7d65 -o screenshot.png
  hansard get demo 9f86d0 | less`,
		Args:              arguments(1, "a session id", "a digest"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := hansard.CheckID(id); err != nil {
				return err
			}
			return a.withStore(reading, func(s hansard.Store) error {
				if len(args) == 1 {
					return a.listAttachments(cmd.Context(), s, id)
				}
				digest, err := findDigest(cmd.Context(), s, id, args[1])
				if err != nil {
					return err
				}
				return a.get(cmd.Context(), s, id, digest, output)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write it to a new `FILE`; - is standard output")
	return cmd
}

func (a *app) listAttachments(ctx context.Context, s hansard.Store, id hansard.SessionID) error {
	n := 0
	for attached, err := range s.Attachments(ctx, id) {
		if err == nil && a.json {
			err = a.out.jsonLine(attached)
		} else if err == nil {
			_, err = fmt.Fprintf(a.out, "%s  %s\n", attached.Digest, humanBytes(attached.Size))
		}
		if err != nil {
			return err
		}
		n++
	}
	if n == 0 && !a.json {
		_, err := fmt.Fprintf(a.out, "%s has no attachments\n", escapeLine(string(id)))
		return err
	}
	return nil
}

// findDigest completes the beginning of a digest.
func findDigest(ctx context.Context, s hansard.Store, id hansard.SessionID, given string) (string, error) {
	if hansard.CheckDigest(given) == nil {
		return given, nil
	}
	hex := given
	if len(hex) > len(hansard.DigestPrefix) && hex[:len(hansard.DigestPrefix)] == hansard.DigestPrefix {
		hex = hex[len(hansard.DigestPrefix):]
	}
	if hex == "" {
		return "", &usageError{"the digest is empty", "hansard get " + string(id) + " lists the attachments"}
	}
	var found []string
	for attached, err := range s.Attachments(ctx, id) {
		if err != nil {
			return "", err
		}
		if rest := attached.Digest[len(hansard.DigestPrefix):]; len(rest) >= len(hex) && rest[:len(hex)] == hex {
			found = append(found, attached.Digest)
		}
	}
	switch len(found) {
	case 0:
		return "", &hinted{fmt.Errorf("%w in session %s: %s", hansard.ErrNoAttachment, id, escapeLine(given)), "hansard get " + string(id) + " lists the attachments"}
	case 1:
		return found[0], nil
	}
	return "", &usageError{fmt.Sprintf("%s is the beginning of %d digests", escapeLine(given), len(found)), "give more of it; hansard get " + string(id) + " lists them"}
}

// get copies an attachment to a file, or to standard output.
func (a *app) get(ctx context.Context, s hansard.Store, id hansard.SessionID, digest, output string) (err error) {
	r, err := s.OpenAttachment(ctx, id, digest)
	if err != nil {
		return err
	}
	defer r.Close()
	if output == "" || output == "-" {
		return a.out.content(func(w io.Writer) error { _, err := io.Copy(w, r); return err })
	}
	f, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(output)
	}
	return err
}
