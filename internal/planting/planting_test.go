package planting

import (
	"strings"
	"testing"
)

// TestQuote defends the counts at the end of make test: no line of a quoted test looks like a
// result.
func TestQuote(t *testing.T) {
	quoted := Quote([]byte("--- FAIL: TestBug (0.01s)\n    --- FAIL: TestBug/part (0.01s)\n        bug_test.go:3: found\nFAIL\n"))
	for line := range strings.Lines(quoted) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "FAIL") {
			t.Errorf("%q counts as a result", line)
		}
	}
	if !strings.Contains(quoted, "bug_test.go:3: found") {
		t.Errorf("%q has not all of it", quoted)
	}
}
