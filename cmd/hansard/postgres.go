package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/filestore"
	"hansard/pgstore"
)

// connectWait is how long a command waits for a database connection.
const connectWait = 15 * time.Second

// openPostgres opens a store in a PostgreSQL database.
func openPostgres(spec string, o *filestore.Options) (hansard.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectWait)
	defer cancel()
	s, err := pgstore.Open(ctx, spec, &pgstore.Options{MustExist: o.MustExist, ReadOnly: o.ReadOnly})
	if errors.Is(err, pgstore.ErrNoSchema) {
		return nil, errNoStore
	}
	if err != nil {
		return nil, err // not a nil *Store in an interface
	}
	return s, nil
}

// keywordPassword is the password in a connection string of keywords, or in the
// query of a URL.
var keywordPassword = regexp.MustCompile(`(password=)('[^']*'|[^\s&]*)`)

// shownStore is a store as it may be shown: without its password or token.
func shownStore(spec string) string {
	if u, err := url.Parse(spec); err == nil && u.User != nil {
		spec = u.Redacted()
	}
	spec, _, _ = strings.Cut(spec, "#token=")
	return keywordPassword.ReplaceAllString(spec, "${1}xxxxx")
}

func newMigrate(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Create the tables of a PostgreSQL store, or bring them up to date",
		Long: `Create the tables of a PostgreSQL store, or bring them up to date. A store does that
automatically when it is first used, if its user may; migrate is for setups where
only the owner of the tables may change them, and for upgrades. It may run anywhere, any
number of times, also while servers are running. A schema that is newer than this
program is refused.`,
		Example: `  hansard migrate --store postgres://owner@db.example/hansard`,
		Args:    arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := a.storeSpec()
			if err != nil {
				return err
			}
			if scheme, _ := splitScheme(spec); scheme != "postgres" && scheme != "postgresql" {
				return &usageError{"only PostgreSQL stores have tables to migrate", "name one: --store postgres://user@host/database"}
			}
			m, err := pgstore.Migrate(cmd.Context(), spec)
			if err != nil {
				return err
			}
			if a.json {
				return a.out.jsonLine(m)
			}
			switch {
			case m.From == m.To:
				_, err = fmt.Fprintf(a.out, "the tables are up to date (version %d)\n", m.To)
			case m.From == 0:
				_, err = fmt.Fprintf(a.out, "made the tables (version %d)\n", m.To)
			default:
				_, err = fmt.Fprintf(a.out, "brought the tables from version %d to %d\n", m.From, m.To)
			}
			return err
		},
	}
}
