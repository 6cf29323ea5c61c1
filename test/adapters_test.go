package test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// core is what the clients are besides the stores for frameworks.
var core = map[string]bool{
	"index.ts": true, "client.ts": true, "http.ts": true, "turn.ts": true, "types.ts": true, "errors.ts": true, "ids.ts": true, "socket.ts": true,
	"__init__.py": true, "client.py": true, "aio.py": true, "types.py": true, "errors.py": true, "_core.py": true, "_http.py": true,
}

// TestAdaptersAreSmall: a store for a framework is a file of less than 300 lines; that of a module in adapters may have
// several. Who wants to know what it does can read all of it.
func TestAdaptersAreSmall(t *testing.T) {
	const most = 300
	found := 0
	for _, pattern := range []string{"../clients/typescript/src/*.ts", "../clients/python/hansard/*.py", "../adapters/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if core[filepath.Base(file)] || strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found++
			if lines := bytes.Count(text, []byte("\n")); lines >= most {
				t.Errorf("%s has %d lines; less than %d are wanted", file, lines, most)
			}
		}
	}
	if found < 9 {
		t.Errorf("%d files were looked at", found)
	}
}
