package storetest

import (
	"hansard"
)

var identityCases = []Case{
	{Name: "identity/one store", run: identityOne,
		Defends: "a store has one identity by every handle and for its whole life, and no two stores have the same", Answers: "67"},
}

func identityOne(x *env) {
	of := func(s hansard.Store) string {
		x.Helper()
		named, ok := s.(hansard.Identified)
		if !ok {
			x.Skipf("SKIPPED: %T does not tell its identity", s) // it does not have to
		}
		id, err := named.Identity(x.ctx)
		if err != nil {
			x.Fatal(err)
		}
		return id
	}
	x.append("s", hansard.Batch{Events: texts("x").Events, Create: true})
	id := of(x.store)
	if id == "" {
		x.Error("a store that was written to has no identity")
	}
	for _, s := range x.handles(3) {
		if got := of(s); got != id {
			x.Errorf("another handle says %q, want %q", got, id)
		}
	}
	other := x.engine.Open(x)
	x.others = append(x.others, other)
	if _, err := other.Append(x.ctx, "s", hansard.Batch{Events: texts("x").Events, Create: true}); err != nil {
		x.Fatal(err)
	}
	if got := of(other); got == id {
		x.Errorf("two stores are both %q", id)
	}
	x.reopen()
	if x.engine.Reopen != nil {
		if got := of(x.store); got != id {
			x.Errorf("opened again it is %q, want %q", got, id)
		}
	}
}
