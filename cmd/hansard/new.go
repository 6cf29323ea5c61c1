package main

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
)

func newNew(a *app) *cobra.Command {
	var title string
	var labels []string
	var reuse bool
	cmd := &cobra.Command{
		Use:   "new [ID]",
		Short: "Make a new session and print its id",
		Long: `Make a new, empty session and print its id.

Without an ID the session gets a UUIDv7, which sorts by time. An id has 1 to 128
characters: letters, digits and . _ - : @ + ~, beginning with a letter or a digit;
upper and lower case differ. The store is created if it does not exist.

An id that is taken is an error (exit 4). So is one that was deleted (exit 3),
unless --reuse allows it: then it is a new, empty session that starts at seq 1,
with nothing of the deleted one.`,
		Example: `  hansard new
  hansard new demo --title "First try" --label owner=ada --label project=x
  id=$(hansard new)`,
		Args:              arguments(0, "an id"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := newID(args)
			if err != nil {
				return err
			}
			a.session = string(id)
			meta := hansard.Meta{Title: title, Reuse: reuse}
			if meta.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			if err := engine.CheckMeta(&meta); err != nil {
				return err
			}
			return a.withStore(creating, func(s hansard.Store) error {
				ctx, cancel := forWrite(cmd.Context())
				defer cancel()
				info, err := s.Create(ctx, id, meta)
				if err != nil {
					return err
				}
				if a.json {
					return a.out.jsonLine(wire.NewSession(info))
				}
				_, err = fmt.Fprintln(a.out, escapeLine(string(info.ID)))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&title, "title", "", "the session's title, a `TEXT`")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "a label, `k=v`; may be repeated")
	cmd.Flags().BoolVar(&reuse, "reuse", false, "make a new session of an id that was deleted")
	return cmd
}

// newID is the id that was given, or a fresh one. A bad id is refused before
// the store is touched.
func newID(args []string) (hansard.SessionID, error) {
	if len(args) == 0 {
		u, err := uuid.NewV7()
		return hansard.SessionID(u.String()), err
	}
	id := hansard.SessionID(args[0])
	return id, hansard.CheckID(id)
}

// parseLabels reads k=v pairs. A value may be empty and may contain "=".
func parseLabels(pairs []string) (map[string]string, error) {
	labels := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return nil, &usageError{fmt.Sprintf("label %q is not of the form k=v", pair), "write --label owner=ada"}
		}
		if _, twice := labels[k]; twice {
			return nil, &usageError{fmt.Sprintf("label %q is given twice", k), ""}
		}
		labels[k] = v
	}
	return labels, nil
}
