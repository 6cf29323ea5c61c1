package client_test

import (
	"testing"

	"hansard"
	"hansard/memstore"
	"hansard/storetest"
)

// TestCopy: sessions are copied from a server and to one as between stores.
func TestCopy(t *testing.T) {
	for _, e := range []storetest.Engine{memoryEngine(), fileEngine()} {
		t.Run(e.Name, func(t *testing.T) {
			storetest.RunCopy(t, e, func(testing.TB) hansard.Store { return memstore.New() })
		})
	}
}
