package filestore

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"testing"
)

// TestOnlySimulationsAreLeftOut: simulations and tests like them are not run under the race detector,
// so neither they nor their helpers may start goroutines or open a store on real files. Helpers
// are matched by name alone, so the check errs on the side of finding too much.
func TestOnlySimulationsAreLeftOut(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	calls, meets := map[string][]string{}, map[string]string{}
	for _, file := range files {
		f, err := parser.ParseFile(fset, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				name := fn.Name.Name
				ast.Inspect(fn, func(n ast.Node) bool {
					if what := meeting(n); what != "" {
						meets[name] = fmt.Sprintf("%s (%s)", what, fset.Position(n.Pos()))
					}
					if id, ok := n.(*ast.Ident); ok { // called, or passed as a function
						calls[name] = append(calls[name], id.Name)
					}
					return true
				})
			}
		}
	}
	found, alone := 0, regexp.MustCompile(Alone)
	for name := range calls {
		if !alone.MatchString(name) {
			continue
		}
		found++
		seen := map[string]bool{}
		var follow func(name, way string)
		follow = func(name, way string) {
			if seen[name] {
				return
			}
			seen[name] = true
			if what := meets[name]; what != "" {
				t.Errorf("%s: %s: it is no simulation, call it otherwise", way, what)
			}
			for _, next := range calls[name] {
				if _, ours := calls[next]; ours {
					follow(next, way+" → "+next)
				}
			}
		}
		follow(name, name)
	}
	if found < 20 {
		t.Errorf("only %d simulations were found", found)
	}
}

// meeting reports how a piece of code lets goroutines interact; empty if it does not.
func meeting(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectorExpr:
		switch x, _ := n.X.(*ast.Ident); {
		case x == nil:
		case x.Name == "sync" && n.Sel.Name == "WaitGroup":
			return "waits for goroutines"
		case x.Name == "vfs" && n.Sel.Name == "OpenDir":
			return "uses real files"
		}
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "Open" || id.Name == "defaultConfig") {
			return "opens a store with goroutines of its own"
		}
	}
	return ""
}
