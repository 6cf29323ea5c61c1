package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hansard"
	"hansard/httpd"
)

// completeLook is how many events and sessions are searched for words already in
// use.
const completeLook = 1000

var (
	knownKinds  = []string{hansard.KindMessage, hansard.KindToolCall, hansard.KindToolResult, hansard.KindSummary}
	knownRoles  = []string{"user", "assistant", "system", "tool"}
	knownRights = []string{"read", "append", "read,append", "admin"}
)

// completeFlags lets the shell complete the values of flags, for all commands. The
// name of a flag's value says whether it is a file; for all others no files are
// offered.
func (a *app) completeFlags(root *cobra.Command) {
	words := map[string]cobra.CompletionFunc{
		"kind":      a.completeFromEvents(knownKinds, func(e hansard.Event) string { return e.Kind }),
		"from-kind": a.completeFromEvents(knownKinds, func(e hansard.Event) string { return e.Kind }),
		"archived":  cobra.FixedCompletions(archivedNames, cobra.ShellCompDirectiveNoFileComp),
		"order":     cobra.FixedCompletions(orderNames, cobra.ShellCompDirectiveNoFileComp),
		"role":      a.completeFromEvents(knownRoles, func(e hansard.Event) string { return e.Role }),
		"author":    a.completeFromEvents(nil, func(e hansard.Event) string { return e.Author }),
		"unlabel":   a.completeUnlabel,
		"rights":    cobra.FixedCompletions(knownRights, cobra.ShellCompDirectiveNoFileComp),
		"from":      cobra.FixedCompletions(formatNames(), cobra.ShellCompDirectiveNoFileComp),
		"format":    cobra.FixedCompletions(exportNames(), cobra.ShellCompDirectiveNoFileComp),
		"colour":    cobra.FixedCompletions(colourNames, cobra.ShellCompDirectiveNoFileComp),
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			takes, _ := pflag.UnquoteUsage(f)
			if _, own := cmd.GetFlagCompletionFunc(f.Name); own || takes == "" || takes == "FILE" || takes == "PATH" {
				return
			}
			complete := cobra.NoFileCompletions
			switch {
			case words[f.Name] != nil:
				complete = words[f.Name]
			case f.Name == "label" && takes == "k=v":
				complete = a.completeLabels
			case takes == "DIRECTORY" || takes == "URL|PATH":
				complete = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
			}
			_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // the flag exists and has no completion yet
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// look runs fn on the store, for a moment. Errors here are not worth a message in
// the middle of a line.
func (a *app) look(cmd *cobra.Command, fn func(context.Context, hansard.Store)) {
	a.storeSet = cmd.Flags().Changed("store")
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWait)
	defer cancel()
	_ = a.withStore(reading, func(s hansard.Store) error {
		fn(ctx, s)
		return nil
	})
}

// completeFromEvents offers the known words, then those in the last events of the
// session.
func (a *app) completeFromEvents(known []string, word func(hansard.Event) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		offer := newOffer(prefix, known...)
		if len(args) > 0 {
			a.look(cmd, func(ctx context.Context, s hansard.Store) {
				for e, err := range s.Read(ctx, hansard.SessionID(args[0]), hansard.Range{Last: completeLook}) {
					if err != nil {
						return
					}
					offer.add(word(e))
				}
			})
		}
		return offer.words, idsDirective
	}
}

// completeLabels offers the labels of the newest sessions, k=v.
func (a *app) completeLabels(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	offer := newOffer(prefix)
	a.look(cmd, func(ctx context.Context, s hansard.Store) {
		for info, err := range s.List(ctx, hansard.Query{Limit: completeLook}) {
			if err != nil {
				continue
			}
			for k, v := range info.Labels {
				offer.add(k + "=" + v)
			}
		}
	})
	slices.Sort(offer.words)
	return offer.words, cobra.ShellCompDirectiveNoFileComp
}

// completeUnlabel offers the names of the labels that the session has.
func (a *app) completeUnlabel(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	offer := newOffer(prefix)
	if len(args) > 0 {
		a.look(cmd, func(ctx context.Context, s hansard.Store) {
			info, err := s.Stat(ctx, hansard.SessionID(args[0]))
			if err != nil {
				return
			}
			for k := range info.Labels {
				offer.add(k)
			}
		})
	}
	slices.Sort(offer.words)
	return offer.words, cobra.ShellCompDirectiveNoFileComp
}

// tokensFor are the existing tokens. Errors are not worth a message in the middle of
// a line.
func (a *app) tokensFor(ctx context.Context, file string) []httpd.Token {
	keeper, _, err := a.tokenKeeper(ctx, file)
	if err != nil {
		return nil
	}
	list, _ := keeper.all()
	return list
}

// completeTokens offers the names of the tokens, with their rights, or of the share
// links alone.
func (a *app) completeTokens(file *string, shares bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) (names []string, _ cobra.ShellCompDirective) {
		a.storeSet = cmd.Flags().Changed("store")
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWait)
		defer cancel()
		for _, token := range a.tokensFor(ctx, *file) {
			if strings.HasPrefix(token.Name, prefix) && escapeLine(token.Name) == token.Name && (token.Share || !shares) {
				names = append(names, token.Name+"\t"+escapeLine(token.Rights))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// offer collects completions for a shell: words that begin with what was typed, each
// once, and none that the shell would read as something else.
type offer struct {
	prefix string
	words  []string
}

func newOffer(prefix string, known ...string) *offer {
	o := &offer{prefix: prefix}
	for _, word := range known {
		o.add(word)
	}
	return o
}

func (o *offer) add(word string) {
	if word == "" || len(o.words) >= completeMax || !strings.HasPrefix(word, o.prefix) || escapeLine(word) != word || slices.Contains(o.words, word) {
		return
	}
	o.words = append(o.words, word)
}
