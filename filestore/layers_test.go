package filestore

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport lists the packages of this module that each layer of the engine may import. A layer
// knows what is below it and nothing beside it, so that a change to the ring can't touch a line
// or a lease.
var mayImport = map[string][]string{
	".": {"hansard", "hansard/engine", "hansard/engine/terms", "hansard/internal/fate", "hansard/internal/vfs",
		"hansard/filestore/internal/cache", "hansard/filestore/internal/journal", "hansard/filestore/internal/peers",
		"hansard/filestore/internal/runs", "hansard/filestore/internal/sessionlog"},
	"internal/crc32c":     nil,
	"internal/journal":    {"hansard", "hansard/internal/vfs", "hansard/filestore/internal/crc32c"},
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

// TestLayers: imports point down, and every package has its rule, which allows nothing that
// is not used.
func TestLayers(t *testing.T) {
	used := map[string]bool{}
	eachSource(t, func(dir, file string, f *ast.File) {
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
			used[dir+" "+path] = true
			if !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s, which its layer must not know", file, path)
			}
		}
	})
	for dir, allowed := range mayImport {
		for _, path := range allowed {
			if !used[dir+" "+path] {
				t.Errorf("package %s may import %s, but does not: remove it from mayImport", dir, path)
			}
		}
	}
}

// TestLockIsTheOnlyWay: the state guarded by write.lock is reached only through lock: nothing but
// lock.go, and newStore, which assembles the store, names that state. The test does not know the
// types of expressions, so it also makes sure that no other struct has a field called state.
func TestLockIsTheOnlyWay(t *testing.T) {
	declared := 0
	eachSource(t, func(dir, file string, f *ast.File) {
		if dir != "." {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return file != "store.go" || n.Name.Name != "newStore"
			case *ast.StructType:
				for _, field := range n.Fields.List {
					for _, name := range field.Names {
						if name.Name != "state" {
							continue
						}
						if declared++; file != "lock.go" || declared > 1 {
							t.Errorf("%s: a second struct has a field called state: this test could not tell it from writeLock's", file)
						}
					}
				}
			case *ast.SelectorExpr:
				if n.Sel.Name == "state" && file != "lock.go" {
					t.Errorf("%s goes past the lock: it uses the field state", file)
				}
			case *ast.CompositeLit:
				for _, e := range n.Elts {
					kv, ok := e.(*ast.KeyValueExpr)
					if !ok || file == "lock.go" {
						continue
					}
					if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "state" {
						t.Errorf("%s goes past the lock: it sets the field state", file)
					}
				}
			}
			return true
		})
	})
	if declared != 1 {
		t.Errorf("%d fields are called state, want that of writeLock: has it been renamed?", declared)
	}
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
