package wire

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestNarrowed: a narrowed token says what it was made with, to the byte: whatever is
// changed of it, or expired, is none.
func TestNarrowed(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	now := time.Now()
	made, err := Narrow(token, Narrowing{Session: "s", Rights: "read", Expires: now.Add(time.Hour).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	n, ok := ParseNarrowed(made, now)
	if !ok || n.Session != "s" || n.Rights != "read" || !bytes.Equal(n.Key, VerifyKey(token)) || bytes.Equal(n.Key, VerifyKey(token+"x")) {
		t.Errorf("%+v, %v", n, ok)
	}
	if strings.Contains(made, token) {
		t.Error("it has the token in it")
	}
	if _, ok := ParseNarrowed(made, now.Add(2*time.Hour)); ok {
		t.Error("it never expires")
	}
	for i := range made {
		changed := []byte(made)
		changed[i] ^= 1
		if got, ok := ParseNarrowed(string(changed), now); ok && i < len(made)-1 { // the last character has spare bits
			t.Errorf("changed at %d it is %+v", i, got)
		}
	}
	for _, junk := range []string{"", "nt1.", "nt1..", "nt1.e30.", token, made + ".", made[:len(made)-3], strings.Repeat("x", 4000)} {
		if _, ok := ParseNarrowed(junk, now); ok {
			t.Errorf("%.40q is one", junk)
		}
	}
	if _, err := Narrow(made, Narrowing{}); err == nil {
		t.Error("it was narrowed again")
	}
}
