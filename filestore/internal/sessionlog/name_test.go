package sessionlog

import (
	"math/rand/v2"
	"strings"
	"testing"

	"hansard"
)

const idChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:@+~"

// randomID draws a valid id, sometimes a tricky one.
func randomID(rng *rand.Rand) hansard.SessionID {
	mean := []string{"con", "CON", "nul.x", "Com1", "lpt9", "aux", "a.", "a..b", "A", "aA", "Aa", "0", "prn.tar.gz", "com10", "consul", "a=b"}
	if rng.IntN(4) == 0 {
		if id := hansard.SessionID(mean[rng.IntN(len(mean))]); hansard.CheckID(id) == nil {
			return id
		}
	}
	b := make([]byte, 1+rng.IntN(hansard.MaxIDBytes))
	for i := range b {
		b[i] = idChars[rng.IntN(len(idChars))]
	}
	b[0] = idChars[rng.IntN(62)]
	return hansard.SessionID(b)
}

// checkName: a name decodes to its id, no file system confuses it with another, and it
// can't lead out of the directory.
func checkName(t *testing.T, id hansard.SessionID) {
	t.Helper()
	name := EncodeName(id)
	if got, ok := DecodeName(name); !ok || got != id {
		t.Fatalf("id %q has the name %q, which stands for %q, %v", id, name, got, ok)
	}
	if name != strings.ToLower(name) {
		t.Fatalf("name %q of %q is not lower case", name, id)
	}
	if strings.ContainsAny(name, `/\:*?"<>|`) || strings.HasPrefix(name, ".") || len(name)+len(Suffix) > 200 || reserved(name) {
		t.Fatalf("name %q of %q", name, id)
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f {
			t.Fatalf("name %q of %q", name, id)
		}
	}
}

func TestNamesRoundTrip(t *testing.T) {
	const seed = 71
	rng := rand.New(rand.NewPCG(seed, 0))
	byName := map[string]hansard.SessionID{}
	for range 50_000 {
		id := randomID(rng)
		checkName(t, id)
		// Names that differ only in case would be one file on some systems.
		name := strings.ToUpper(EncodeName(id))
		if other, ok := byName[name]; ok && other != id {
			t.Fatalf("seed %d: %q and %q have the same file", seed, id, other)
		}
		byName[name] = id
	}
}

// TestNamesStable: these names are on people's disks and must not change.
func TestNamesStable(t *testing.T) {
	for id, want := range map[hansard.SessionID]string{
		"demo-1": "demo-1", "Demo": "demo=g0", "a:b": "a!b", "con": "=con", "Con": "con=g0", "com7.x": "=com7.x", "0190-A": "0190-a=0g", "A": "a=g0",
		"0190a7c2-6d1e-7b9a-8c3f-1d2e3f4a5b6c": "0190a7c2-6d1e-7b9a-8c3f-1d2e3f4a5b6c",
	} {
		if got := EncodeName(id); got != want {
			t.Errorf("id %q has the name %q, want %q", id, got, want)
		}
		checkName(t, id)
	}
}

// TestNamesRefused: an id has one file name; other spellings name no session.
func TestNamesRefused(t *testing.T) {
	for _, name := range []string{"", ".", "..", "=", "==", "a=", "=a", "Demo", "demo=G", "demo=gg", "demo=g", "demo=0", "a b", "a/b", "../a", "a\x00", "é",
		"con", "=demo", "a=g=", "-a", "_a", "!a", "demo=v", "1=g", "a!b=8", strings.Repeat("a", 129), "demo=zz", "demo=g\n"} {
		if id, ok := DecodeName(name); ok {
			t.Errorf("name %q stands for %q", name, id)
		}
	}
}
