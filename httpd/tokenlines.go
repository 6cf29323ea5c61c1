package httpd

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"hansard/internal/wire"
)

// tokenLine is a line of the file.
type tokenLine struct {
	Name    string    `json:"name,omitempty"`
	Rights  string    `json:"rights,omitempty"`
	SHA256  string    `json:"sha256,omitempty"`
	Key     []byte    `json:"key,omitempty"`
	Time    time.Time `json:"time"`
	Removed bool      `json:"removed,omitempty"`
	Scope
	Expires time.Time `json:"expires,omitzero"`
	Rate    float64   `json:"rate,omitempty"`
	Share   bool      `json:"share,omitempty"`
	// Bind says in which store and in which file the tokens after this line are
	// valid; with Adopt, those before it are too.
	Bind  *binding `json:"bind,omitempty"`
	Adopt bool     `json:"adopt,omitempty"`
}

// binding is a store and a file.
type binding struct {
	Store string `json:"store,omitempty"`
	File  string `json:"file,omitempty"`
}

// writeLocked appends a line about a token. If the file has no token that is valid here it
// binds the file first: the tokens before that line remain invalid.
func (t *Tokens) writeLocked(l tokenLine) error {
	return t.appendLocked(l, len(t.list) == 0)
}

func (t *Tokens) appendLocked(l tokenLine, bind bool) error {
	f, err := openTokenFile(t.path, true)
	if err != nil {
		return err
	}
	l.Time = time.Now().UTC().Truncate(time.Second)
	lines := []tokenLine{l}
	if bind {
		place := tokenLine{Bind: &binding{t.store, filePlace(f)}, Time: l.Time, Adopt: l.Adopt}
		if lines = []tokenLine{place, l}; l.Adopt {
			lines = lines[:1]
		}
	}
	// It also begins with a line break, so that a line half-written in a crash can't
	// spoil the next one.
	text := []byte("\n")
	for _, l := range lines {
		text = append(append(text, wire.Marshal(l)...), '\n')
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	t.stamp = stamp{}
	return t.loadLocked()
}

// parse reads the lines. Lines that can't be parsed are ignored: they admit nobody.
func (t *Tokens) parse(content []byte, here binding) (list, foreign []Token) {
	valid := false // the lines being read are bound to this store and this file
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, maxTokensBytes)
	for lines.Scan() {
		var l tokenLine
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		if l.Bind != nil {
			switch match := (l.Bind.Store == here.Store || l.Bind.Store == "" || here.Store == "") && l.Bind.File == here.File; {
			case match && valid: // several processes bound the file at once
			case match && l.Adopt:
				list, foreign, valid = append(list, foreign...), nil, true
			case match:
				foreign, list, valid = append(foreign, list...), nil, true
			case !l.Adopt:
				foreign, list, valid = append(foreign, list...), nil, false
			}
			continue
		}
		to := &foreign
		if valid {
			to = &list
		}
		takeLine(to, &l)
	}
	return list, foreign
}

// takeLine adds or removes the token of a line.
func takeLine(to *[]Token, l *tokenLine) {
	at := slices.IndexFunc(*to, func(k Token) bool { return k.Name == l.Name })
	if l.Removed {
		if at >= 0 {
			*to = slices.Delete(*to, at, at+1)
		}
		return
	}
	rights, err := ParseRights(l.Rights)
	sum, hexErr := hex.DecodeString(l.SHA256)
	if l.Name == "" || at >= 0 || err != nil || hexErr != nil || len(sum) != len(hashed{}) || checkName(l.Name) != nil {
		return
	}
	*to = append(*to, Token{Name: l.Name, Rights: rights.String(), Created: l.Time, Scope: l.Scope, Expires: l.Expires, Rate: l.Rate, Share: l.Share,
		hash: hashed(sum), key: string(l.Key), rights: rights})
}
