package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"hansard"
)

// What turn tells the program it runs, and append, set and rm in it find.
const (
	envStore   = "HANSARD_STORE"
	envSession = "HANSARD_SESSION"
	envTurn    = "HANSARD_TURN"
)

// turnEnv is the environment of a program that holds the turn.
func (a *app) turnEnv(id hansard.SessionID, g hansard.Grant) ([]string, error) {
	spec, err := a.storeSpec()
	if err != nil {
		return nil, err
	}
	return append(os.Environ(), envStore+"="+absoluteSpec(spec), envSession+"="+string(id), envTurn+"="+string(g)), nil
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
	if err != nil || !sameStore(spec, os.Getenv(envStore)) {
		return "", err
	}
	return checkGrant(envTurn, g)
}

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
		return "", &hansard.InvalidError{Field: strings.TrimPrefix(where, "--"), Reason: fmt.Sprintf("%q is no grant; one looks like 7-9f86d081884c7d65", g)}
	}
	return hansard.Grant(g), nil
}
