package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"hansard"
	"hansard/client"
	"hansard/filestore"
	"hansard/httpd"
	"hansard/internal/wire"
)

// keeper is where tokens are kept: a file, or a server.
type keeper interface {
	Add(k httpd.Token) (string, error)
	Remove(name string) error
	all() ([]httpd.Token, error)
}

type fileKeeper struct{ *httpd.Tokens }

func (k fileKeeper) all() ([]httpd.Token, error) { return k.List(), nil }

// serverKeeper keeps them on a server.
type serverKeeper struct {
	ctx   context.Context
	store *client.Store
}

func (k serverKeeper) Add(t httpd.Token) (string, error) {
	var made struct{ Token string }
	err := k.store.Tokens(k.ctx, http.MethodPost, "", struct {
		httpd.Token
		Created *time.Time `json:"created,omitempty"` // set by the server
	}{Token: t}, &made)
	return made.Token, tokenError(err, t.Name)
}

func (k serverKeeper) Remove(name string) error {
	return tokenError(k.store.Tokens(k.ctx, http.MethodDelete, name, nil, nil), name)
}

// tokenError is a server's answer about a token, as the error that a file would give.
func tokenError(err error, name string) error {
	var p *wire.Problem
	if errors.As(err, &p) {
		switch p.Type {
		case wire.ProblemType("no-such-token"):
			return fmt.Errorf("%w: %s", httpd.ErrNoToken, name)
		case wire.ProblemType("token-exists"):
			return fmt.Errorf("%w: %s", httpd.ErrTokenExists, name)
		}
	}
	return err
}

func (k serverKeeper) all() ([]httpd.Token, error) {
	var found struct{ Tokens []httpd.Token }
	err := k.store.Tokens(k.ctx, http.MethodGet, "", nil, &found)
	return found.Tokens, err
}

// tokenKeeper is where the tokens of the store are kept, and the server's address if
// that is a server.
func (a *app) tokenKeeper(ctx context.Context, file string) (k keeper, address string, err error) {
	spec, err := a.storeSpec()
	if err != nil {
		return nil, "", err
	}
	if file == "" && isServer(spec) {
		s, err := a.opener(spec, &filestore.Options{})
		if err != nil {
			return nil, "", err
		}
		server, ok := s.(*client.Store)
		if !ok {
			return nil, "", errNoTokenDir
		}
		return serverKeeper{ctx, server}, shownStore(spec), nil
	}
	tokens, err := a.openTokens(ctx, file, nil)
	return fileKeeper{tokens}, "", err
}

// errNoTokenDir is a store that is not a directory.
var errNoTokenDir = &usageError{"this kind of store has no directory to keep tokens in", "name a file with --token-file"}

// openTokens opens the file in which the tokens of the store are kept. They belong to
// this store: those of another have no effect. open is the store, if it is open already.
func (a *app) openTokens(ctx context.Context, file string, open hansard.Store) (*httpd.Tokens, error) {
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
			return nil, &noStoreError{spec, "the server or the first session makes it: " + a.again("serve")}
		}
		file = filepath.Join(path, "tokens")
	}
	identity := ""
	identify := func(s hansard.Store) (err error) {
		identity, err = identityOf(ctx, s)
		return err
	}
	var err error
	if open != nil {
		err = identify(open)
	} else {
		err = a.withStore(reading, identify)
	}
	if err != nil && !errors.Is(err, errNoStore) {
		return nil, err
	}
	return httpd.OpenTokens(file, identity)
}

// identityOf identifies a store; empty if it has no identity.
func identityOf(ctx context.Context, s hansard.Store) (string, error) {
	named, ok := s.(hansard.Identified)
	if !ok {
		return "", nil
	}
	return named.Identity(ctx)
}
