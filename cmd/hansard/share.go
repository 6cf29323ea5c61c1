package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/httpd"
)

// shareFor is how long a link is valid.
const shareFor = 7 * 24 * time.Hour

// shareURL is where links lead when the store is a directory: the server's default.
const shareURL = "http://127.0.0.1:4267"

func newShare(a *app) *cobra.Command {
	var file, address string
	var last time.Duration
	cmd := &cobra.Command{
		Use:   "share ID",
		Short: "Make a link by which somebody can read one session",
		Long: `Make a link by which somebody can read one session, for a time, and nothing else.
Whoever has the link can read it: it is a token that may read this session.

"hansard share ls" lists the links, "hansard share rm NAME" withdraws one.
The store is a directory whose server is at --url, or a server, whose token in
HANSARD_TOKEN needs the right admin.`,
		Example: `  hansard share demo --for 7d
  hansard share ls
  hansard share rm share-4f1c9a2e`,
		Args:              arguments(1, "a session id"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := hansard.CheckID(id); err != nil {
				return err
			}
			if last <= 0 {
				return &usageError{"--for: a link has to be good for some time", "write --for 7d"}
			}
			return a.share(cmd.Context(), id, last, file, address)
		},
	}
	durationVar(cmd.Flags(), &last, "for", shareFor, "how long the link is good for")
	cmd.PersistentFlags().StringVar(&file, "token-file", "", "the `FILE` the tokens are kept in")
	cmd.Flags().StringVar(&address, "url", "", "the `URL` of the server, where the store is a directory (default "+shareURL+")")
	cmd.AddCommand(newShareLs(a, &file), newShareRm(a, &file))
	return cmd
}

func (a *app) share(ctx context.Context, id hansard.SessionID, last time.Duration, file, address string) error {
	if err := a.withStore(reading, func(s hansard.Store) error { _, err := s.Stat(ctx, id); return err }); err != nil {
		return err
	}
	var name [4]byte
	_, _ = rand.Read(name[:]) // never fails
	made := httpd.Token{Name: "share-" + hex.EncodeToString(name[:]), Rights: httpd.Read.String(), Scope: httpd.Scope{Session: id},
		Expires: a.now().Add(last), Share: true}
	keeper, server, err := a.tokenKeeper(ctx, file)
	if err != nil {
		return err
	}
	token, err := keeper.Add(made)
	if err != nil {
		return err
	}
	link := linkTo(pageAddress(address, server), "share", token, id)
	if a.json {
		return a.out.jsonLine(map[string]any{"session": id, "name": made.Name, "url": link, "expires": made.Expires.UTC().Truncate(time.Second)})
	}
	fmt.Fprintf(a.out, "%s\n", escapeLine(link))
	fmt.Fprintf(a.stderr, "hansard: whoever has it can read %s until %s; %s withdraws it\n", escapeLine(string(id)), humanTime(a.now(), made.Expires), a.again("share", "rm", made.Name))
	return nil
}

func newShareLs(a *app, file *string) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the links", Long: "List the links: their names, sessions and how long they are good for.", Example: "  hansard share ls --json",
		Args: arguments(0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listTokens(cmd.Context(), *file, true) },
	}
}

func newShareRm(a *app, file *string) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Withdraw a link", Long: "Withdraw a link. Within two seconds nobody can read through it any more.", Example: "  hansard share rm share-4f1c9a2e",
		Args: arguments(1, "a name"), ValidArgsFunction: a.completeTokens(file, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			keeper, _, err := a.tokenKeeper(cmd.Context(), *file)
			if err != nil {
				return err
			}
			list, err := keeper.all()
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(list, func(k httpd.Token) bool { return k.Share && k.Name == args[0] }) {
				return &hinted{noLinkError(args[0]), a.again("share", "ls") + " lists them"}
			}
			return keeper.Remove(args[0])
		},
	}
}

// noLinkError is the name of a link that does not exist.
type noLinkError string

func (e noLinkError) Error() string        { return "there is no link called " + escapeLine(string(e)) }
func (e noLinkError) Is(target error) bool { return target == httpd.ErrNoToken }

// pageAddress is where the page is: the given address, else the server that is the
// store.
func pageAddress(given, server string) string {
	switch {
	case given != "":
		return given
	case strings.HasPrefix(server, "http"): // a browser can't open a socket
		return server
	}
	return shareURL
}
