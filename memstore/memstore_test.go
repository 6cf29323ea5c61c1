package memstore_test

import (
	"testing"

	"hansard"
	"hansard/memstore"
	"hansard/storetest"
)

// One process, one handle, nothing kept: what needs more is skipped here. Package
// storetest runs those cases on memstore too, behind handles and processes of its
// own making.
var engine = storetest.Engine{
	Name: "memstore",
	Open: func(testing.TB) hansard.Store { return memstore.New() },
}

func TestStore(t *testing.T) { storetest.Run(t, engine) }

func BenchmarkStore(b *testing.B) { storetest.Bench(b, engine) }
