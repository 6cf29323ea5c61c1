package test

import (
	"bufio"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The stores for frameworks in the clients. Each has a file of its name; further files are named
// NAME-… or NAME_…. Everything else is the client, which all of them share.
var (
	tsAdapters = []string{"claude", "openai-agents", "mcp", "langgraph", "ai-sdk"}
	pyAdapters = []string{"claude", "openai_agents"}
	core       = []string{
		"index.ts", "client.ts", "http.ts", "turn.ts", "types.ts", "errors.ts", "ids.ts", "sha256.ts", "socket.ts",
		"__init__.py", "client.py", "aio.py", "types.py", "errors.py", "_core.py", "_http.py",
	}
)

// TestAdaptersAreSmall: a store for a framework has less than 300 lines of code in total, in
// however many files, so that anybody who wants to know what it does can read all of it.
func TestAdaptersAreSmall(t *testing.T) {
	const most = 300
	lines := map[string]int{}
	count := func(adapter, file string) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines[adapter] += linesOfCode(filepath.Ext(file), string(text))
	}
	for dir, names := range map[string][]string{"../clients/typescript/src": tsAdapters, "../clients/python/hansard": pyAdapters} {
		eachFile(t, dir, func(file string) {
			base := filepath.Base(file)
			name := strings.TrimSuffix(base, filepath.Ext(base))
			of := slices.IndexFunc(names, func(a string) bool {
				return name == a || strings.HasPrefix(name, a+"-") || strings.HasPrefix(name, a+"_")
			})
			switch {
			case of >= 0:
				count(dir+"/"+names[of], file)
			case !slices.Contains(core, base) && (strings.HasSuffix(base, ".ts") || strings.HasSuffix(base, ".py")):
				t.Errorf("%s is neither of the client nor of an adapter that is known here", file)
			}
		})
	}
	modules, err := filepath.Glob("../adapters/*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range modules {
		dir := filepath.Dir(module)
		eachFile(t, dir, func(file string) {
			if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
				count(dir, file)
			}
		})
	}
	for adapter, n := range lines {
		t.Logf("%s: %d lines of code", adapter, n)
		if n >= most || n < 20 {
			t.Errorf("%s has %d lines of code; less than %d are wanted", adapter, n, most)
		}
	}
	if want := len(tsAdapters) + len(pyAdapters) + len(modules); len(lines) != want || len(modules) == 0 {
		t.Errorf("%d adapters were found, want %d: %v", len(lines), want, lines)
	}
}

func eachFile(t *testing.T, dir string, do func(file string)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), "docs-"): // temporary, from the adapter's tests
			return fs.SkipDir
		case d.Type().IsRegular():
			do(file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// linesOfCode counts the lines that are neither empty nor comments. In TypeScript and Python,
// whose string literals it does not parse, a comment begins at the start of a line.
func linesOfCode(ext, text string) (n int) {
	if ext == ".go" {
		return goLines([]byte(text))
	}
	begin, end, line := "/*", "*/", "//"
	if ext == ".py" {
		begin, end, line = `"""`, `"""`, "#"
	}
	inside := false
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		code := strings.TrimSpace(s.Text())
		if !inside && strings.HasPrefix(code, begin) {
			inside, code = true, code[len(begin):]
			if strings.Contains(code, end) {
				inside = false
			}
			continue
		}
		switch {
		case inside:
			inside = !strings.Contains(code, end)
		case code != "" && !strings.HasPrefix(code, line):
			n++
		}
	}
	return n
}

func goLines(text []byte) int {
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", -1, len(text)), text, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // the end of a line, not a token in it
		}
		for i := range strings.Count(literal, "\n") + 1 { // a multi-line literal is code on all of its lines
			lines[set.Position(pos).Line+i] = true
		}
	}
}

// TestLinesOfCode: the measure itself.
func TestLinesOfCode(t *testing.T) {
	for _, c := range []struct {
		ext, text string
		want      int
	}{
		{".go", "// Package a.\npackage a\n\n/* two\nlines */\nvar a = 1 // one\n\nvar b = `x\n\ny`\n", 5},
		{".ts", "/** Two\n * lines. */\nimport a;\n\n// one\nconst b = 1; // one\n  /* one */\nconst c = `\n  d`;\n", 4},
		{".py", "\"\"\"Two\nlines.\"\"\"\n\n# one\nimport a\n\ndef f():\n    \"\"\"One.\"\"\"\n    return 1  # one\n", 3},
	} {
		if got := linesOfCode(c.ext, c.text); got != c.want {
			t.Errorf("%d lines of code, want %d, in:\n%s", got, c.want, c.text)
		}
	}
}
