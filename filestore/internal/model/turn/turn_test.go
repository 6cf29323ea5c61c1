package turn

import (
	"strings"
	"testing"
)

var configs = map[string]Config{
	"kill":   {Procs: 2, Kills: 2},
	"cut":    {Procs: 2, Cuts: 1},
	"error":  {Procs: 2, Errors: 2, Kills: 1},
	"backup": {Procs: 2, Backups: 1},
}

// TestAllRules: with all rules on, nothing goes wrong in any world.
func TestAllRules(t *testing.T) {
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Search(c, AllRules)
			t.Logf("%v; up to %d grants, %d writes", r, r.Grants, r.Writes)
			if r.Broken != "" {
				t.Fatalf("%s\n%s", r.Broken, strings.Join(r.Trace, "\n"))
			}
			if r.States < 20_000 || r.Grants < 3 || r.Writes < 3 {
				t.Error("that is too little to show anything")
			}
		})
	}
}

// TestEachRule: each rule is needed, and the search shows what for.
func TestEachRule(t *testing.T) {
	for _, c := range []struct {
		name    string
		without Rules
		config  string
		broken  string
	}{
		{"fence", Fence, "kill", "a line under grant 1 stands where"},
		{"fence at commit", FenceAtCommit, "kill", "a line under grant 1 stands where"},
		{"equality", Equality, "backup", "stands where"},
		{"lease first", LeaseFirst, "kill", "lives and was called dead"},
		{"error is no death", ErrorIsNoDeath, "error", "lives and was called dead"},
		{"grant waits", GrantWaits, "cut", "was answered and is gone"},
		{"refusal waits", RefusalWaits, "cut", "after somebody was told"},
		{"release own", ReleaseOwn, "kill", "was ended by the release of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := Search(configs[c.config], AllRules&^c.without)
			if !strings.Contains(r.Broken, c.broken) {
				t.Fatalf("without it: %v, want %q\n%s", r, c.broken, strings.Join(r.Trace, "\n"))
			}
			t.Logf("%s\n%s", r.Broken, strings.Join(r.Trace, "\n"))
		})
	}
}
