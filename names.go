package hansard

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

var plainName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,36}$`)

// IDOf makes a session id from a word that says what the session is and from names that
// someone else chose, such as those of an app and its users: "chat:shop:ada". A name of more
// than 36 characters, or with characters other than letters, digits and ". _ -", is hashed.
// Different names give different ids, except that empty ones at the end are left out; the
// clients in other languages make the same ids. There is room for three names.
func IDOf(word string, names ...string) SessionID {
	for len(names) > 0 && names[len(names)-1] == "" {
		names = names[:len(names)-1]
	}
	for _, name := range names {
		if !plainName.MatchString(name) {
			name = hashOf(name)
		}
		word += ":" + name
	}
	return SessionID(word)
}

// FitName turns a text that someone else chose into a valid kind, role, author or id of an event,
// or a label: it returns the text itself if every store accepts it and it has no control
// characters, else a hash of it.
func FitName(text string) string {
	if len(text) > MaxNameBytes || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return hashOf(text)
	}
	return text
}

// hashOf returns a hash that begins with a character that plain names do not have.
func hashOf(text string) string { return fmt.Sprintf("~%x", sha256.Sum256([]byte(text)))[:33] }
