// Package planting builds the tests of a package with bugs put in on purpose. The bugs are
// not in the code: the build replaces a few lines of it, through an overlay.
package planting

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Change is lines of a file, and what they become. The lines must be in the file exactly
// once, and no comment among them: that a comment is improved must not fail a test.
type Change struct{ File, Is, Becomes string }

// Files returns the content of the files that the changes are about, with the changes made.
func Files(t testing.TB, changes []Change) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, c := range changes {
		if files[c.File] == "" {
			b, err := os.ReadFile(filepath.FromSlash(c.File))
			if err != nil {
				t.Fatal(err)
			}
			files[c.File] = string(b)
		}
		if strings.Contains(c.Is, "//") {
			t.Fatalf("%s: a planting that depends on a comment:\n%s", c.File, c.Is)
		}
		if n := strings.Count(files[c.File], c.Is); n != 1 {
			t.Fatalf("%s has these lines %d times; the planting no longer fits the code:\n%s", c.File, n, c.Is)
		}
		files[c.File] = strings.Replace(files[c.File], c.Is, c.Becomes, 1)
	}
	return files
}

// Build builds the tests of the package in the current directory with these files in place
// of the package's own, and returns the program. It skips the test if there is no go to build
// with.
func Build(t testing.TB, files map[string]string) (tests string) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("SKIPPED: there is no go to build the bugs with")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, content := range files {
		made := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay.Replace)))
		if err := os.WriteFile(made, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(here, filepath.FromSlash(file))] = made
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	tests = filepath.Join(dir, "planted.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", file, "-o", tests, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the bugs: %v\n%s", err, out)
	}
	return tests
}

// Quote marks what a test with a bug printed as quoted, line by line: whoever counts failures in
// the log of the whole run must not count the one that was wanted.
func Quote(out []byte) string {
	return "| " + strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "\n| ")
}
