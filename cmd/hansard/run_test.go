package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunNUL: an id with a NUL byte, which no command line can hold, is refused
// by every command before anything is opened or made.
func TestRunNUL(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	for _, args := range [][]string{
		{"new", "a\x00b"}, {"append", "a\x00b", "text", "--create"}, {"show", "a\x00b"}, {"tail", "a\x00b"}, {"stat", "a\x00b"},
		{"set", "a\x00b", "--title", "t"}, {"rm", "a\x00b"}, {"verify", "a\x00b"}, {"repair", "a\x00b"},
		{"append", "demo", "text\x00", "--create", "--role", "a\x00b"}, {"new", "demo", "--title", "a\x00b"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append(args, "--store", store), strings.NewReader(""), &stdout, &stderr)
		if code != exitUsage || !strings.HasPrefix(stderr.String(), "hansard: invalid ") || strings.Contains(stderr.String(), "\x00") {
			t.Errorf("%q: exit code %d, stderr %q", args, code, stderr.String())
		}
	}
	if found, _ := filepath.Glob(store + "*"); found != nil {
		t.Errorf("bad input made %v", found)
	}
}

// TestHelp: every command has help worth reading: a sentence, more, examples.
func TestHelp(t *testing.T) {
	root := newRoot(&app{})
	for _, cmd := range root.Commands() {
		if cmd.Hidden {
			continue
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s lacks a part of its help", cmd.Name())
		}
		for _, line := range strings.Split(cmd.Long+"\n"+cmd.Example, "\n") {
			if len([]rune(line)) > 90 {
				t.Errorf("%s: a line of the help has %d columns: %s", cmd.Name(), len(line), line)
			}
		}
	}
}
