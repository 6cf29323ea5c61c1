package filestore_test

import (
	"testing"

	"hansard"
	"hansard/memstore"
	"hansard/storetest"
)

func TestCopy(t *testing.T) {
	storetest.RunCopy(t, engine(), func(testing.TB) hansard.Store { return memstore.New() })
}
