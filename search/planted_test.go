package search_test

import (
	"os/exec"
	"strings"
	"testing"

	"hansard/internal/planting"
)

// plantings are bugs put in on purpose, and the test that has to find each of them. What was
// taken away does not come back for two reasons: the indexer looks at the sessions again
// before it commits, and the store tells the index afterwards. A store of files has both.
var plantings = []struct {
	bug, test     string
	file, is, now string
}{
	{"an indexer that brings erased text back", "TestAnyStore", "update.go", `	if err := st.lookAgain(ctx); err != nil {
		return 0, err
	}
`, `	beforeLookAgain()
`},
	{"erased text that comes after the last look stays", "TestErasedWhileIndexing", "erase.go", `			if err := st.remove(ctx, id); err != nil {
				return err
			}
`, `			_ = id
`},
	{"an indexer that brings redacted text back", "TestRedactedAnyStore", "update.go", `	if err := st.removeEvents(ctx, in, e.redacts); err != nil {
		return err
	}
`, ""},
	{"redacted text that comes after the last look stays", "TestRedactedWhileIndexing", "erase.go",
		`return st.removeEvents(ctx, st.db.sessions[id], seqs) })`, `return nil })`},
}

// TestPlanted defends the tests of what is taken away: they find bugs that were put in on
// purpose.
func TestPlanted(t *testing.T) {
	for _, p := range plantings {
		t.Run(p.bug, func(t *testing.T) {
			tests := planting.Build(t, planting.Files(t, []planting.Change{{File: p.file, Is: p.is, Becomes: p.now}}))
			out, err := exec.CommandContext(t.Context(), tests, "-test.run=^"+p.test+"$").CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: "+p.test) {
				t.Errorf("%s does not find it: %v\n%s", p.test, err, planting.Quote(out))
			}
			t.Log(planting.Quote(out))
		})
	}
}
