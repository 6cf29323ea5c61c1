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

// What turn tells the program it runs, and append, set and rm in it find.
const (
	envStore   = "HANSARD_STORE"
	envSession = "HANSARD_SESSION"
	envTurn    = "HANSARD_TURN"
	// envStoreID tells the store, by whichever address it is reached.
	envStoreID = "HANSARD_STORE_ID"
)

// programAccess is how long the token of a program that a turn runs is good for, where
// the turn has no bound of its own.
const programAccess = 7 * 24 * time.Hour

// turnEnv is the environment of a program that holds the turn: with what it needs for
// its session, and no more. It does not get the password of a database; of a server it
// gets a token for this session alone, and not the user's.
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

// programToken is the token for a program: this session's, and no longer than the turn
// may last.
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

// absoluteSpec is a store's name that is right in every directory.
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
	// file: keeps a name with a colon in it from being taken for a scheme.
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

// of is the grant to write to a session under, empty for none: --turn, else that
// of the turn this program runs in, if it is of the same session and store.
func (f *turnFlag) of(a *app, id hansard.SessionID) (hansard.Grant, error) {
	if f.given() {
		if f.grant == "" {
			return "", nil // said so: without the turn, although there is one
		}
		return checkGrant("--turn", f.grant)
	}
	return a.turnHeld(id)
}

// turnHeld is the grant of the turn this program runs in, if it is that of a session.
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

// sameByIdentity tells whether the store is the one this program's turn is of, though it
// is reached by another address: it has the same identity, or holds the same grant,
// which no two stores ever do. What can't be asked is not the same: the command itself
// gets the error.
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

// identityWait is how long a store is asked which one it is.
const identityWait = 15 * time.Second

// sameStore tells whether two names are of one store, also where they spell its
// directory differently.
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
