package hansard_test

import (
	"strings"
	"testing"

	"hansard"
)

// TestIDOf: whatever the names, the id is unique: no other names have it.
func TestIDOf(t *testing.T) {
	long := strings.Repeat("x", 37)
	hashed := "~e3b0c44298fc1c149afbf4c8996fb924" // of the empty name
	for want, names := range map[hansard.SessionID][]string{
		"chat":          {"", ""},
		"chat:shop":     {"shop", "", ""},
		"chat:shop:ada": {"shop", "ada"},
		"chat:A.b_c-1":  {"A.b_c-1"},
		"chat:shop:" + hansard.SessionID(hashed) + ":s": {"shop", "", "s"},
	} {
		if got := hansard.IDOf("chat", names...); got != want {
			t.Errorf("the id of %q is %q, want %q", names, got, want)
		}
	}
	seen := map[hansard.SessionID][]string{}
	odd := []string{"a", "A", "a:b", "b", "b:a", "ä", "~a", hashed, "x\x00", "\xff", "\xfe", " ", "", long[:36], long, long + long}
	for _, one := range odd {
		for _, two := range odd {
			id := hansard.IDOf("chat-shared", one, two, "last")
			if err := hansard.CheckID(id); err != nil {
				t.Errorf("%q, %q: %v", one, two, err)
			}
			if other := seen[id]; other != nil {
				t.Errorf("%q and %q have the id %q", other, []string{one, two}, id)
			}
			seen[id] = []string{one, two}
		}
	}
	for n := range 130 {
		name := strings.Repeat("x", n)
		if id := hansard.IDOf("chat-shared", name, name, name); hansard.CheckID(id) != nil {
			t.Errorf("no room for three names of %d characters in %q", n, id)
		}
	}
}

// TestFitName: a text that a store would refuse is hashed; any other is unchanged.
func TestFitName(t *testing.T) {
	for _, text := range []string{"", "ada", "Ada Lovelace/ä", strings.Repeat("x", hansard.MaxNameBytes)} {
		if got := hansard.FitName(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	seen := map[string]bool{}
	for _, text := range []string{"a\x00", "a\n", "\xff", "\xfe", "\u0085", strings.Repeat("x", hansard.MaxNameBytes+1)} {
		got := hansard.FitName(text)
		if len(got) != 33 || got[0] != '~' || seen[got] {
			t.Errorf("%q became %q", text, got)
		}
		seen[got] = true
	}
}
