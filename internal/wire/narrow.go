package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"hansard"
)

// The owner of a token can narrow it, without asking the server: the result is another
// token that allows less. It is signed with a key derived from the token; the server
// keeps the public half beside the token's hash, so that nobody can make a narrowed token
// from that file.

// Narrowing is what a narrowed token allows at most. It never allows more than the token
// it was made from.
type Narrowing struct {
	// Key is the public key of the token it was made from.
	Key []byte `json:"k"`
	// Session is the only session it is for.
	Session hansard.SessionID `json:"s,omitempty"`
	// Rights are the names of the rights, separated by commas.
	Rights string `json:"r,omitempty"`
	// Expires is when it expires, in seconds since 1970.
	Expires int64 `json:"e"`
	// Login says that it is valid for one login, with this number, and nothing else.
	Login string `json:"l,omitempty"`
}

const narrowPrefix = "nt1."

// maxNarrowed is longer than any narrowed token.
const maxNarrowed = 2048

func narrowKey(token string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("hansard narrowed token\n" + token))
	return ed25519.NewKeyFromSeed(seed[:])
}

// VerifyKey is the public key that identifies the narrowed tokens of a token.
func VerifyKey(token string) []byte { return narrowKey(token).Public().(ed25519.PublicKey) }

// Narrow makes a narrowed token. A narrowed token can't be narrowed again.
func Narrow(token string, n Narrowing) (string, error) {
	if IsNarrowed(token) {
		return "", errors.New("the token is narrowed already")
	}
	n.Key = VerifyKey(token)
	text := narrowPrefix + base64.RawURLEncoding.EncodeToString(Marshal(n))
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(narrowKey(token), []byte(text))), nil
}

// IsNarrowed reports whether a token looks like a narrowed one.
func IsNarrowed(token string) bool { return strings.HasPrefix(token, narrowPrefix) }

// ParseNarrowed reads a narrowed token whose signature matches its key, and which has not
// expired. The caller has to find out whose key that is.
func ParseNarrowed(token string, now time.Time) (Narrowing, bool) {
	var n Narrowing
	at := strings.LastIndexByte(token, '.')
	if len(token) > maxNarrowed || !IsNarrowed(token) || at < len(narrowPrefix) {
		return n, false
	}
	body, err := base64.RawURLEncoding.DecodeString(token[len(narrowPrefix):at])
	if err != nil || json.Unmarshal(body, &n) != nil || len(n.Key) != ed25519.PublicKeySize {
		return n, false
	}
	signature, err := base64.RawURLEncoding.DecodeString(token[at+1:])
	return n, err == nil && ed25519.Verify(n.Key, []byte(token[:at]), signature) && now.Unix() < n.Expires
}
