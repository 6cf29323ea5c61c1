package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
second.`,
		Example: `  hansard token add dashboard --rights read
  hansard token add agent-7 --rights read,append
  hansard token ls
  hansard token rm agent-7`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&file, "token-file", "", "the `FILE` the tokens are kept in")
	cmd.AddCommand(newTokenAdd(a, &file), newTokenLs(a, &file), newTokenRm(a, &file))
	return cmd
}

func newTokenAdd(a *app, file *string) *cobra.Command {
	var rights string
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Make a token and print it, once",
		Long: `Make a token and print it. It can't be shown again: only its hash is kept.

The rights are read (list, read and follow), append (create, append, change
metadata, take turns) and admin (all of it, and delete, import, verify the whole
store and repair).`,
		Example:           "  hansard token add dashboard --rights read",
		Args:              arguments(1, "a name"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			wanted, err := httpd.ParseRights(rights)
			if err != nil {
				return &usageError{"--rights: " + err.Error(), "write --rights read,append"}
			}
			tokens, err := a.openTokens(*file)
			if err != nil {
				return err
			}
			token, err := tokens.Add(args[0], wanted)
			if err != nil {
				return err
			}
			if a.json {
				return a.out.jsonLine(map[string]string{"name": args[0], "rights": wanted.String(), "token": token})
			}
			_, err = fmt.Fprintln(a.out, token)
			return err
		},
	}
	cmd.Flags().StringVar(&rights, "rights", "read,append", "what it may do: read, append, admin")
	return cmd
}

func newTokenLs(a *app, file *string) *cobra.Command {
	return &cobra.Command{
		Use:               "ls",
		Short:             "List the tokens: names and rights",
		Long:              "List the tokens: their names, rights and when they were made.",
		Example:           "  hansard token ls --json",
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			tokens, err := a.openTokens(*file)
			if err != nil {
				return err
			}
			t := &table{columns: []column{{name: "NAME"}, {name: "RIGHTS"}, {name: "MADE"}}}
			for _, token := range tokens.List() {
				if a.json {
					if err := a.out.jsonLine(token); err != nil {
						return err
					}
					continue
				}
				t.add("", token.Name, token.Rights, humanAgo(a.now(), token.Created))
			}
			if len(t.rows) == 0 {
				return nil
			}
			return t.print(a.out)
		},
	}
}

func newTokenRm(a *app, file *string) *cobra.Command {
	return &cobra.Command{
		Use:               "rm NAME",
		Short:             "Withdraw a token",
		Long:              "Withdraw a token. A running server refuses it within a second.",
		Example:           "  hansard token rm agent-7",
		Args:              arguments(1, "a name"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			tokens, err := a.openTokens(*file)
			if err != nil {
				return err
			}
			return tokens.Remove(args[0])
		},
	}
}

// errNoTokenDir is a store that is not a directory.
var errNoTokenDir = &usageError{"this kind of store has no directory to keep tokens in", "name a file with --token-file"}

// openTokens opens the file the tokens of the store are kept in.
func (a *app) openTokens(file string) (*httpd.Tokens, error) {
	if file == "" {
		spec, err := a.storeSpec()
		if err != nil {
			return nil, err
		}
		scheme, rest := splitScheme(spec)
		if scheme != "" && scheme != "file" {
			return nil, errNoTokenDir
		}
		path, err := filePath(scheme, rest)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil, &noStoreError{spec, a.again("serve")}
		}
		file = filepath.Join(path, "tokens")
	}
	return httpd.OpenTokens(file)
}
