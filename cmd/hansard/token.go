package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hansard/httpd"
)

func newToken(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and withdraw the tokens of the server",
		Long: `Make, list and withdraw the tokens by which "hansard serve" knows its clients.

They are kept in the file "tokens" of the store's directory, or --token-file: their
names, rights and hashes, never the tokens. A running server sees a change within a
second, and within two it has ended what a withdrawn token had: streams, sockets,
waiting requests, turns.`,
		Example: `  hansard token add dashboard --rights read
  hansard token add agent-7 --rights read,append
  hansard token ls
  hansard token rm agent-7`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&file, "token-file", "", "the `FILE` the tokens are kept in")
	cmd.AddCommand(newTokenAdd(a, &file), newTokenLs(a, &file), newTokenRm(a, &file), newTokenAdopt(a, &file))
	return cmd
}

// tokenOptions are the flags of token add.
type tokenOptions struct {
	rights, prefix string
	labels         []string
	expires        time.Duration
	rate           string
	address        string // of the server, for a link to its page
}

func newTokenAdd(a *app, file *string) *cobra.Command {
	var o tokenOptions
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Make a token and print it, once",
		Long: `Make a token and print it. It can't be shown again: only its hash is kept.

The rights are read (list, read and follow), append (create, append, change
metadata, take turns) and admin (all of it, and delete, import, verify the whole
store and repair).

--prefix and --label limit it to sessions whose ids begin with this text, and that have
these labels. To this token all others do not exist; sessions it creates get the labels.
--expires ends it automatically, --rate limits how many requests it may send.

Besides the token it prints a link that opens the page of the server with it: good once,
for ten minutes.`,
		Example: `  hansard token add dashboard --rights read
  hansard token add ci --rights append --prefix team:ci: --expires 30d --rate 50/s`,
		Args:              arguments(1, "a name"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			made, err := o.token(a, args[0])
			if err != nil {
				return err
			}
			keeper, server, err := a.tokenKeeper(cmd.Context(), *file)
			if err != nil {
				return err
			}
			token, err := keeper.Add(made)
			if err != nil {
				return err
			}
			link, err := codeLink(pageAddress(o.address, server), token, "", codeWithin)
			if err != nil {
				return err
			}
			if a.json {
				return a.out.jsonLine(map[string]string{"name": args[0], "rights": made.Rights, "token": token, "open": link})
			}
			if _, err = fmt.Fprintln(a.out, escapeLine(token)); err == nil && made.Rights != httpd.Append.String() { // the page reads
				fmt.Fprintf(a.stderr, "hansard: opens the page with this token, once, within %s: %s\n", humanDuration(codeWithin), escapeLine(link))
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.rights, "rights", "read,append", "the `RIGHTS` it has: read, append, admin")
	flags.StringVar(&o.prefix, "prefix", "", "only sessions whose ids begin with this `TEXT`")
	flags.StringArrayVar(&o.labels, "label", nil, "only sessions with this label, `k=v`; may be repeated")
	durationVar(flags, &o.expires, "expires", 0, "how long it is good for (default: no end)")
	flags.StringVar(&o.address, "url", "", "the `URL` of the server, where the store is a directory (default "+shareURL+")")
	flags.StringVar(&o.rate, "rate", "", "how many requests it may send, a `RATE`: 50/s, 3000/m")
	return cmd
}

// token is what the flags describe.
func (o *tokenOptions) token(a *app, name string) (httpd.Token, error) {
	k := httpd.Token{Name: name, Scope: httpd.Scope{Prefix: o.prefix}}
	rights, err := httpd.ParseRights(o.rights)
	if err != nil {
		return k, &usageError{"--rights: " + err.Error(), "write --rights read,append"}
	}
	k.Rights = rights.String()
	for _, pair := range o.labels {
		label, value, ok := strings.Cut(pair, "=")
		if !ok || label == "" {
			return k, &usageError{fmt.Sprintf("--label: %q is not of the form k=v", pair), ""}
		}
		if k.Labels == nil {
			k.Labels = map[string]string{}
		}
		k.Labels[label] = value
	}
	if o.expires < 0 {
		return k, &usageError{"--expires: a token can't have ended before it is made", "write --expires 30d"}
	}
	if o.expires > 0 {
		k.Expires = a.now().Add(o.expires)
	}
	if o.rate != "" {
		if k.Rate, err = httpd.ParseRate(o.rate); err != nil {
			return k, &usageError{"--rate: " + err.Error(), ""}
		}
	}
	return k, nil
}

func newTokenLs(a *app, file *string) *cobra.Command {
	return &cobra.Command{
		Use:               "ls",
		Short:             "List the tokens: names, rights and scopes",
		Long:              "List the tokens: their names, rights, what they are for and when they were made.",
		Example:           "  hansard token ls --json",
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.listTokens(cmd.Context(), *file, false) },
	}
}

// listTokens prints the tokens, or the shares alone.
func (a *app) listTokens(ctx context.Context, file string, shares bool) error {
	keeper, _, err := a.tokenKeeper(ctx, file)
	if err != nil {
		return err
	}
	list, err := keeper.all()
	if err != nil {
		return err
	}
	t := &table{columns: []column{{name: "NAME"}, {name: "RIGHTS"}, {name: "FOR"}, {name: "ENDS"}, {name: "MADE"}}}
	for _, token := range list {
		if shares && !token.Share {
			continue
		}
		if a.json {
			if err := a.out.jsonLine(token); err != nil {
				return err
			}
			continue
		}
		ends := ""
		if !token.Expires.IsZero() {
			ends = humanTime(a.now(), token.Expires)
		}
		t.add("", escapeLine(token.Name), escapeLine(token.Rights), escapeLine(token.Scope.String()), ends, humanAgo(a.now(), token.Created))
	}
	if len(t.rows) == 0 {
		return nil
	}
	return t.print(a.out)
}

func newTokenRm(a *app, file *string) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Withdraw a token",
		Long: `Withdraw a token. Within two seconds running servers refuse it and have ended what
it had: streams, sockets, waiting requests, turns.`,
		Example:           "  hansard token rm agent-7",
		Args:              arguments(1, "a name"),
		ValidArgsFunction: a.completeTokens(file, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			keeper, _, err := a.tokenKeeper(cmd.Context(), *file)
			if err != nil {
				return err
			}
			return keeper.Remove(args[0])
		},
	}
}

func newTokenAdopt(a *app, file *string) *cobra.Command {
	return &cobra.Command{
		Use:   "adopt",
		Short: "Accept the tokens of a store that was copied here",
		Long: `Accept the tokens of a store that was copied or restored from elsewhere. Until then
they let nobody in: whoever made them could otherwise read and write here.`,
		Example:           "  hansard token adopt",
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tokens, err := a.openTokens(cmd.Context(), *file, nil)
			if err != nil {
				return err
			}
			return tokens.Adopt()
		},
	}
}
