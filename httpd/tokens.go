package httpd

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// Tokens is an [Access] kept in a file of mode 0600: named tokens with rights and a
// scope, hashed, so that the file reveals no token.
//
// The file is append-only, a line of JSON for each token that is added or removed,
// so that any number of servers and commands may write to it at once. The first to
// add a name owns it, until it is removed.
//
// The tokens are valid for one store, and in the file they were written to: if the file
// was copied with a store from elsewhere, or belongs to another store, they are
// [Tokens.Foreign] and admit nobody until someone adopts them.
type Tokens struct {
	path  string
	store string  // identity; empty if unknown
	given []Token // those that are not in the file; guarded by mu

	mu      sync.RWMutex // guards all below
	looked  time.Time    // when the file was last compared
	stamp   stamp
	list    []Token
	byHash  map[hashed]*Token
	byKey   map[string]*Token
	foreign []Token // tokens that are not valid here
}

// Token describes a token.
type Token struct {
	Name    string    `json:"name"`
	Rights  string    `json:"rights"`
	Created time.Time `json:"created"`
	Scope
	Expires time.Time `json:"expires,omitzero"`
	Rate    float64   `json:"rate,omitempty"` // requests a second
	// Share says that it is a link to one session.
	Share  bool `json:"share,omitempty"`
	hash   hashed
	key    string // identifies tokens that were narrowed from this one
	rights Right
}

// pass is what a token allows.
func (k *Token) pass() Pass {
	return Pass{Name: k.Name, Rights: k.rights, Scope: k.Scope, Expires: k.Expires, Rate: k.Rate}
}

func (k *Token) expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

const (
	// tokensLook is the minimum time between two checks of the file: a removed
	// token is refused from the next check on.
	tokensLook     = 500 * time.Millisecond
	minTokenBytes  = 16
	maxTokenBytes  = 256
	maxNameBytes   = 64
	maxTokensBytes = 4 << 20
)

// ErrTokenExists is returned by Add for a name that is taken.
var ErrTokenExists = errors.New("there is a token of this name")

// ErrNoToken is returned for the name of a token that does not exist.
var ErrNoToken = errors.New("there is no token of this name")

// OpenTokens reads the file at a path. A missing file is one without tokens. store is the
// identity of the store that they are for, empty if it has none.
func OpenTokens(path, store string) (*Tokens, error) {
	t := &Tokens{path: path, store: store}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t, t.loadLocked()
}

// Who implements [Access].
func (t *Tokens) Who(token string) (Pass, bool) {
	t.look()
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := time.Now()
	if n, ok := wire.ParseNarrowed(token, now); ok {
		known := t.byKey[string(n.Key)]
		if known == nil || known.expired(now) || n.Login != "" {
			return Pass{}, false
		}
		return narrowed(known.pass(), n)
	}
	known := t.byHash[hashToken(token)] // its timing reveals only the hash of what the caller sent
	if known == nil || known.expired(now) {
		return Pass{}, false
	}
	return known.pass(), true
}

// narrowed is a pass reduced to what a narrowed token allows.
func narrowed(p Pass, n wire.Narrowing) (Pass, bool) {
	rights, err := ParseRights(n.Rights)
	if err != nil || rights&Admin != 0 {
		return Pass{}, false
	}
	for _, r := range rightNames {
		if rights&r.right != 0 && !p.Rights.allows(r.right) {
			rights &^= r.right
		}
	}
	var ok bool
	if p.Scope, ok = p.Scope.within(n.Session); !ok || rights == 0 {
		return Pass{}, false
	}
	p.Rights = rights
	if ends := time.Unix(n.Expires, 0); p.Expires.IsZero() || ends.Before(p.Expires) {
		p.Expires = ends
	}
	return p, true
}

// look checks the file for changes, if a check is due.
func (t *Tokens) look() {
	t.mu.RLock()
	fresh := time.Since(t.looked) < tokensLook
	t.mu.RUnlock()
	if fresh {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// If the file can no longer be read its last content stays in effect: nobody is
	// admitted who was not before.
	_ = t.loadLocked()
}

// List returns the tokens, in the order they were added.
func (t *Tokens) List() []Token {
	t.look()
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clone(t.list)
}

// Foreign returns the tokens in the file that are not valid here.
func (t *Tokens) Foreign() []Token {
	t.look()
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clone(t.foreign)
}

// Add makes a token and returns it. It can't be retrieved again. From the description it
// takes the name, rights, scope, expiry, rate and whether it is a share; what they can't
// be is a [hansard.InvalidError].
func (t *Tokens) Add(k Token) (token string, err error) {
	rights, err := ParseRights(k.Rights)
	if err == nil {
		err = checkNew(&k)
	}
	if err != nil {
		return "", &hansard.InvalidError{Field: "token", Reason: err.Error()}
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	token = base64.RawURLEncoding.EncodeToString(secret[:])
	hash := hashToken(token)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.loadLocked(); err != nil {
		return "", err
	}
	if t.findLocked(k.Name) != nil {
		return "", fmt.Errorf("%w: %s", ErrTokenExists, k.Name)
	}
	line := tokenLine{Name: k.Name, Rights: rights.String(), SHA256: hex.EncodeToString(hash[:]), Key: wire.VerifyKey(token),
		Scope: k.Scope, Expires: k.Expires.UTC().Truncate(time.Second), Rate: k.Rate, Share: k.Share}
	if err := t.writeLocked(line); err != nil {
		return "", err
	}
	if got := t.findLocked(k.Name); got == nil || got.hash != hash {
		return "", fmt.Errorf("%w: %s", ErrTokenExists, k.Name) // another process added it first
	}
	return token, nil
}

// checkNew checks that a token may be made as described.
func checkNew(k *Token) error {
	if err := checkName(k.Name); err != nil {
		return err
	}
	if k.expired(time.Now()) {
		return errors.New("the token would have expired already")
	}
	if k.Expires.UTC().Year() > 9999 {
		return errors.New("a token ends before the year 10000")
	}
	if k.Rate < 0 {
		return errors.New("a rate can't be negative")
	}
	return k.check()
}

// Remove withdraws a token.
func (t *Tokens) Remove(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.loadLocked(); err != nil {
		return err
	}
	if t.findLocked(name) == nil {
		return fmt.Errorf("%w: %s", ErrNoToken, name)
	}
	return t.writeLocked(tokenLine{Name: name, Removed: true})
}

// Adopt makes foreign tokens valid here.
func (t *Tokens) Adopt() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.loadLocked(); err != nil || len(t.foreign) == 0 {
		return err
	}
	return t.appendLocked(tokenLine{Adopt: true}, true)
}

// Accept makes a token valid that is not in the file, for as long as the program runs.
func (t *Tokens) Accept(name, token string, rights Right) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.given = append(t.given, Token{Name: name, Rights: rights.String(), rights: rights, hash: hashToken(token), key: string(wire.VerifyKey(token))})
	t.indexLocked()
}

func (t *Tokens) findLocked(name string) *Token {
	i := slices.IndexFunc(t.list, func(k Token) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	return &t.list[i]
}

// indexLocked indexes tokens by their hash, and by the key of those narrowed from them.
func (t *Tokens) indexLocked() {
	t.byHash, t.byKey = map[hashed]*Token{}, map[string]*Token{}
	add := func(k *Token) {
		t.byHash[k.hash] = k
		if k.key != "" {
			t.byKey[k.key] = k
		}
	}
	for i := range t.list {
		add(&t.list[i])
	}
	for i := range t.given {
		add(&t.given[i])
	}
}

// tokenSigns are the characters a token may have: those that need no escaping in a
// header, a WebSocket subprotocol or a URL.
const tokenSigns = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

// CheckToken checks a token that was not generated here.
func CheckToken(token string) error {
	switch {
	case len(token) < minTokenBytes:
		return fmt.Errorf("a token has at least %d characters", minTokenBytes)
	case len(token) > maxTokenBytes:
		return fmt.Errorf("a token has at most %d characters", maxTokenBytes)
	case strings.Trim(token, tokenSigns) != "":
		return errors.New("a token has only letters, digits and - . _ ~")
	}
	return nil
}

func checkName(name string) error {
	if name == "" || len(name) > maxNameBytes || strings.Trim(name, tokenSigns) != "" {
		return fmt.Errorf("the name of a token has up to %d letters, digits and - . _ ~", maxNameBytes)
	}
	return nil
}
