package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/internal/wire"
)

// The variables that turn sets for the program it runs, and that append, set and rm use.
const (
	envStore   = "HANSARD_STORE"
	envSession = "HANSARD_SESSION"
	envTurn    = "HANSARD_TURN"
	// envStoreID identifies the store, whatever address it is reached by.
	envStoreID = "HANSARD_STORE_ID"
)

// programAccess is how long the token of a program run by turn is valid, if the turn
// itself has no limit.
const programAccess = 7 * 24 * time.Hour

// turnEnv is the environment of a program that holds the turn: with what it needs for
// its session, and no more. It does not get the password of a database; for a server it
// gets a token for this session only, not the user's.
func (a *app) turnEnv(ctx context.Context, s hansard.Store, id hansard.SessionID, t hansard.Turn) ([]string, error) {
	spec, err := a.storeSpec()
	if err != nil {
		return nil, err
	}
	identity, err := identityOf(ctx, s)
	if err != nil {
		return nil, err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return isServer(spec) && (name == envToken || name == envTokenFile) || name == envStoreID || name == "PGPASSWORD" || name == "PGSSLPASSWORD"
	})
	token, err := a.programToken(spec, id, t)
	if err != nil {
		return nil, err
	}
	if token != "" {
		env = append(env, envToken+"="+token)
	}
	spec, _, _ = strings.Cut(withoutPassword(absoluteSpec(spec)), "#token=")
	return append(env, envStore+"="+spec, envStoreID+"="+identity, envSession+"="+string(id), envTurn+"="+string(t.Grant)), nil
}

// isServer tells whether a store is reached through a server.
func isServer(spec string) bool {
	scheme, _ := splitScheme(spec)
	return scheme == "http" || scheme == "https" || scheme == "unix"
}

// programToken is the token for a program: for this session, and valid no longer than
// the turn may last.
func (a *app) programToken(spec string, id hansard.SessionID, t hansard.Turn) (string, error) {
	if !isServer(spec) {
		return "", nil
	}
	token, err := a.serverToken(spec)
	if _, inAddress, ok := strings.Cut(spec, "#token="); ok && token == "" {
		token = inAddress
	}
	if err != nil || token == "" || wire.IsNarrowed(token) {
		return token, err
	}
	last := programAccess
	if t.MaxHold > 0 {
		last = min(last, t.MaxHold+time.Minute)
	}
	return wire.Narrow(token, wire.Narrowing{Session: id, Rights: "read,append", Expires: a.now().Add(last).Unix()})
}

// absoluteSpec is a store's name that works in every directory.
func absoluteSpec(spec string) string {
	scheme, rest := splitScheme(spec)
	if scheme != "" && scheme != "file" {
		return spec
	}
	path, err := filePath(scheme, rest)
	if err != nil {
		return spec // opening it gives the error
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return spec
	}
	// file: keeps a name with a colon from being read as a scheme.
	if scheme, _ := splitScheme(abs); scheme != "" {
		return "file:" + abs
	}
	return abs
}

// turnFlag is the --turn of a command that writes.
type turnFlag struct {
	grant string
	given func() bool
}

func (f *turnFlag) add(a *app, cmd *cobra.Command) {
	const name = "turn"
	cmd.Flags().StringVar(&f.grant, name, "", "write under this `GRANT` of the turn (default $HANSARD_TURN, if it is of this session)")
	f.given = func() bool { return cmd.Flags().Changed(name) }
	_ = cmd.RegisterFlagCompletionFunc(name, a.completeGrant) // fails only for a flag that is not there
}

// of is the grant under which to write to a session, empty for none: --turn, else that
// of the turn this program runs in, if it is for the same session and store.
func (f *turnFlag) of(a *app, id hansard.SessionID) (hansard.Grant, error) {
	if f.given() {
		if f.grant == "" {
			return "", nil // explicitly without the turn, although there is one
		}
		return checkGrant("--turn", f.grant)
	}
	return a.turnHeld(id)
}

// turnHeld is the grant of the turn this program runs in, if that is the turn of this
// session.
func (a *app) turnHeld(id hansard.SessionID) (hansard.Grant, error) {
	g := os.Getenv(envTurn)
	if g == "" || os.Getenv(envSession) != string(id) {
		return "", nil
	}
	spec, err := a.storeSpec()
	if err != nil {
		return "", err
	}
	if !sameStore(spec, os.Getenv(envStore)) && !a.sameByIdentity(id, hansard.Grant(g)) {
		return "", nil
	}
	return checkGrant(envTurn, g)
}

// sameByIdentity tells whether the store is that of this program's turn although it is
// reached by another address: it has the same identity, or holds the same grant, which
// no two stores ever do. If the store can't be asked, the answer is no: the command
// itself gets the error.
func (a *app) sameByIdentity(id hansard.SessionID, g hansard.Grant) (same bool) {
	_ = a.withStore(reading, func(s hansard.Store) error {
		ctx, cancel := context.WithTimeout(context.Background(), identityWait)
		defer cancel()
		identity, err := identityOf(ctx, s)
		if err == nil && identity != "" && os.Getenv(envStoreID) != "" {
			same = identity == os.Getenv(envStoreID)
			return nil
		}
		held, err := s.Turn(ctx, id)
		same = err == nil && held != nil && held.Grant == g
		return err
	})
	return same
}

// identityWait is how long to wait for a store's identity.
const identityWait = 15 * time.Second

// sameStore tells whether two names refer to one store, even if they spell its directory
// differently.
func sameStore(a, b string) bool {
	a, b = absoluteSpec(a), absoluteSpec(b)
	if a == b {
		return true
	}
	infoA, errA := os.Stat(strings.TrimPrefix(a, "file:"))
	infoB, errB := os.Stat(strings.TrimPrefix(b, "file:"))
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func checkGrant(where, g string) (hansard.Grant, error) {
	if hansard.Grant(g).Number() == 0 {
		return "", &hansard.InvalidError{Field: strings.TrimPrefix(where, "--"), Reason: fmt.Sprintf("%q is not a grant; one looks like 7-9f86d081884c7d65", g)}
	}
	return hansard.Grant(g), nil
}
