package httpd

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tokens is an [Access] kept in a file of mode 0600: named tokens with rights,
// hashed, so that the file tells nobody a token.
//
// The file is only ever appended to, a line of JSON for each token that is added
// or removed, so that any number of servers and commands may do so at once. The
// first to add a name has it, until it is removed.
type Tokens struct {
	path string

	mu     sync.RWMutex // guards all below
	looked time.Time    // when the file was last compared
	stamp  stamp
	list   []Token
}

// Token describes a token.
type Token struct {
	Name    string    `json:"name"`
	Rights  string    `json:"rights"`
	Created time.Time `json:"created"`
	hash    hashed
	rights  Right
}

// tokenLine is a line of the file.
type tokenLine struct {
	Name    string    `json:"name"`
	Rights  string    `json:"rights,omitempty"`
	SHA256  string    `json:"sha256,omitempty"`
	Time    time.Time `json:"time"`
	Removed bool      `json:"removed,omitempty"`
}

// stamp tells whether a file changed.
type stamp struct {
	size int64
	time time.Time
}

const (
	// tokensLook is how often at most the file is compared: a token that was
	// removed is refused from then on.
	tokensLook     = time.Second
	minTokenBytes  = 16
	maxTokenBytes  = 256
	maxNameBytes   = 64
	maxTokensBytes = 4 << 20
)

// ErrTokenExists is returned for the name of a token that there is.
var ErrTokenExists = errors.New("there is a token of this name")

// ErrNoToken is returned for the name of a token that there is not.
var ErrNoToken = errors.New("there is no token of this name")

// OpenTokens reads the file at a path. One that is not there has no tokens.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t, t.loadLocked()
}

// Who implements [Access].
func (t *Tokens) Who(token string) (name string, rights Right, ok bool) {
	hash := hashToken(token)
	for _, known := range t.List() { // all of them, whichever it is
		if subtle.ConstantTimeCompare(known.hash[:], hash[:]) == 1 {
			name, rights, ok = known.Name, known.rights, true
		}
	}
	return name, rights, ok
}

// List gives the tokens there are, in the order they were added.
func (t *Tokens) List() []Token {
	t.mu.RLock()
	list, fresh := t.list, time.Since(t.looked) < tokensLook
	t.mu.RUnlock()
	if fresh {
		return list
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// A file that can't be read any more keeps what it said: nobody is
	// let in who was not.
	_ = t.loadLocked()
	return t.list
}

// Add makes a token and gives it. It can't be had again.
func (t *Tokens) Add(name string, rights Right) (token string, err error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	if rights == 0 {
		return "", errors.New("a token without rights is of no use")
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
	if t.findLocked(name) != nil {
		return "", fmt.Errorf("%w: %s", ErrTokenExists, name)
	}
	if err := t.writeLocked(tokenLine{Name: name, Rights: rights.String(), SHA256: hex.EncodeToString(hash[:])}); err != nil {
		return "", err
	}
	if got := t.findLocked(name); got == nil || got.hash != hash {
		return "", fmt.Errorf("%w: %s", ErrTokenExists, name) // somebody was faster
	}
	return token, nil
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

func (t *Tokens) findLocked(name string) *Token {
	i := slices.IndexFunc(t.list, func(k Token) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	return &t.list[i]
}

// writeLocked appends a line and reads the file again. The line begins with a
// line break too, so that one that was torn by a crash spoils no other.
func (t *Tokens) writeLocked(l tokenLine) error {
	l.Time = time.Now().UTC().Truncate(time.Second)
	line, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(t.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(append([]byte("\n"), line...), '\n'))
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	t.stamp = stamp{}
	return t.loadLocked()
}

// loadLocked reads the file if it changed.
func (t *Tokens) loadLocked() error {
	t.looked = time.Now()
	info, err := os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		t.list, t.stamp = nil, stamp{}
		return nil
	}
	if err != nil {
		return err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("the token file %s may be read by others: chmod 600 it", t.path)
	}
	now := stamp{info.Size(), info.ModTime()}
	if now == t.stamp {
		return nil
	}
	if info.Size() > maxTokensBytes {
		return fmt.Errorf("the token file %s is too large", t.path)
	}
	content, err := os.ReadFile(t.path)
	if err != nil {
		return err
	}
	t.list, t.stamp = parseTokens(content), now
	return nil
}

// parseTokens reads the lines. What is no line of ours lets nobody in.
func parseTokens(content []byte) []Token {
	var list []Token
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		var l tokenLine
		if json.Unmarshal(lines.Bytes(), &l) != nil || l.Name == "" {
			continue
		}
		at := slices.IndexFunc(list, func(k Token) bool { return k.Name == l.Name })
		if l.Removed {
			if at >= 0 {
				list = slices.Delete(list, at, at+1)
			}
			continue
		}
		rights, err := ParseRights(l.Rights)
		sum, hexErr := hex.DecodeString(l.SHA256)
		if at >= 0 || err != nil || hexErr != nil || len(sum) != len(hashed{}) {
			continue
		}
		list = append(list, Token{Name: l.Name, Rights: rights.String(), Created: l.Time, hash: hashed(sum), rights: rights})
	}
	return list
}

// tokenSigns are the signs a token may have: those that need no escape in a
// header, a WebSocket subprotocol or a URL.
const tokenSigns = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

// CheckToken tells whether a token that somebody made up will do.
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
