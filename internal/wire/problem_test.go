package wire

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"hansard"
)

// declared are the errors that errors.go of the contract declares, and those in its table of
// kinds. No program can ask package hansard for them, so they are read in its source.
func declared(t *testing.T) (vars, kinds []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok || gen.Tok != token.VAR {
			continue
		}
		for _, spec := range gen.Specs {
			v := spec.(*ast.ValueSpec)
			switch name := v.Names[0].Name; {
			case strings.HasPrefix(name, "Err"):
				vars = append(vars, name)
			case name == "kinds":
				for _, e := range v.Values[0].(*ast.CompositeLit).Elts {
					kinds = append(kinds, e.(*ast.CompositeLit).Elts[0].(*ast.Ident).Name)
				}
			}
		}
	}
	return vars, kinds
}

// TestEveryErrorIsAProblem: every error that the contract declares has its kind, and every kind
// its problem, once, from which a client restores the same kind.
func TestEveryErrorIsAProblem(t *testing.T) {
	vars, inTable := declared(t)
	slices.Sort(vars)
	slices.Sort(inTable)
	if len(vars) == 0 || !slices.Equal(vars, inTable) {
		t.Errorf("errors.go declares\n%v, its table of kinds has\n%v", vars, inTable)
	}
	all := ContractErrors()
	seen := map[error]bool{}
	for _, kind := range all {
		seen[kind] = true
		if got := hansard.Kind(kind); got != kind {
			t.Errorf("%v is a problem, but of the kind %v", kind, got)
		}
		p := ProblemOf(fmt.Errorf("wrapped: %w", kind))
		if p.Type == ProblemType("internal") || p.Status < 400 || p.Title == "" {
			t.Errorf("%v is the problem %+v", kind, p)
		}
		// A server that closes is not the caller's store.
		if back := p.Err(); hansard.Kind(back) != kind && (kind != hansard.ErrClosed || !errors.As(back, new(*Problem))) {
			t.Errorf("%v comes back as %v", kind, back)
		}
	}
	if len(all) != len(seen) || len(seen) != len(inTable) {
		t.Errorf("%d problems of %d kinds; the contract has %d", len(all), len(seen), len(inTable))
	}
}
