package filestore

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// mayImport lists the packages of this module that each layer of the engine may import. A layer
// knows what is below it and nothing beside it, so that a change to the ring can't touch a line
// or a lease.
var mayImport = map[string][]string{
	"internal/crc32c":     nil,
	"internal/journal":    {"hansard", "hansard/engine", "hansard/internal/vfs", "hansard/filestore/internal/crc32c"},
	"internal/sessionlog": {"hansard", "hansard/engine", "hansard/internal/jsontext", "hansard/internal/vfs", "hansard/filestore/internal/crc32c"},
	"internal/cache":      {"hansard", "hansard/internal/vfs", "hansard/filestore/internal/crc32c", "hansard/filestore/internal/sessionlog"},
	"internal/runs":       {"hansard/internal/vfs", "hansard/filestore/internal/crc32c"},
	"internal/peers":      {"hansard", "hansard/engine", "hansard/internal/vfs", "hansard/filestore/internal/crc32c"},
	"internal/model":      nil,
	"internal/model/turn": nil,
}

// eachSource parses the sources of this package and of those below it, without tests.
func eachSource(t *testing.T, fn func(dir, file string, f *ast.File)) {
	t.Helper()
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err == nil {
			fn(filepath.ToSlash(filepath.Dir(path)), filepath.ToSlash(path), f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLayers: imports point down, and every package below has its rule.
func TestLayers(t *testing.T) {
	eachSource(t, func(dir, file string, f *ast.File) {
		if dir == "." {
			return
		}
		allowed, ok := mayImport[dir]
		if !ok {
			t.Errorf("%s: package %s is not in mayImport: say what it may know", file, dir)
			return
		}
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if path != "hansard" && !strings.HasPrefix(path, "hansard/") {
				continue
			}
			found := false
			for _, a := range allowed {
				found = found || a == path
			}
			if !found {
				t.Errorf("%s imports %s, which its layer must not know", file, path)
			}
		}
	})
}

// TestLockIsTheOnlyWay: the state guarded by write.lock is reached only through lock: nothing but
// lock.go, and the code that assembles the store, names that state.
func TestLockIsTheOnlyWay(t *testing.T) {
	eachSource(t, func(dir, file string, f *ast.File) {
		if dir != "." || file == "lock.go" {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			fn, ok := n.(*ast.FuncDecl)
			if ok && fn.Name.Name == "newStore" {
				return false
			}
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "state" {
				if x, ok := sel.X.(*ast.SelectorExpr); ok && x.Sel.Name == "lock" {
					t.Errorf("%s goes past the lock: lock.state", file)
				}
			}
			return true
		})
	})
}

// TestSmallEnough: no type has more methods than one can keep in mind, and no function is longer
// than one can see at a glance.
func TestSmallEnough(t *testing.T) {
	const methodsMax, linesMax = 40, 80
	methods := map[string]int{}
	fset := token.NewFileSet()
	eachSource(t, func(dir, file string, _ *ast.File) {
		if strings.Contains(dir, "model") {
			return // an explorer is one large step function
		}
		f, err := parser.ParseFile(fset, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; n > linesMax {
				t.Errorf("%s: %s has %d lines", file, fn.Name.Name, n)
			}
			if fn.Recv != nil {
				recv := fn.Recv.List[0].Type
				if star, ok := recv.(*ast.StarExpr); ok {
					recv = star.X
				}
				if id, ok := recv.(*ast.Ident); ok {
					methods[dir+" "+id.Name]++
				}
			}
		}
	})
	for name, n := range methods {
		if n > methodsMax {
			t.Errorf("%s has %d methods", name, n)
		}
	}
}

// TestCommented: at least one line of comment for four of code. Most lines of the engine are
// there because of a crash or another process, and the code can't say which.
func TestCommented(t *testing.T) {
	const least = 4
	code, comments := 0, 0
	eachSource(t, func(dir, file string, _ *ast.File) {
		if strings.Contains(dir, "model") {
			return
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			switch line = strings.TrimSpace(line); {
			case strings.HasPrefix(line, "//"):
				comments++
			case line != "":
				code++
			}
		}
	})
	t.Logf("%d lines of code, %d of comments", code, comments)
	if comments*least < code {
		t.Errorf("%d lines of comments for %d of code", comments, code)
	}
}
