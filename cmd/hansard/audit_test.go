package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAuditFile: the audit log is readable by its owner only, and its size is bounded: one file
// has the last lines, and a second one those before them.
func TestAuditFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := &auditFile{path: path, most: 100}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if _, err := l.Write([]byte(strings.Repeat(string(rune('a'+i%26)), 29) + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	var all string
	for _, name := range []string{path + ".1", path} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 100 {
			t.Errorf("%s has %d bytes", filepath.Base(name), len(text))
		}
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		all += string(text)
	}
	if lines := strings.Fields(all); len(lines) < 4 || lines[len(lines)-1][0] != 'x' || lines[len(lines)-2][0] != 'w' {
		t.Errorf("what is left: %q", lines)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}
