package pgstore_test

import (
	"testing"

	"hansard"
	"hansard/filestore"
	"hansard/memstore"
	"hansard/storetest"
)

func TestCopy(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		storetest.RunCopy(t, engine(), func(testing.TB) hansard.Store { return memstore.New() })
	})
	t.Run("files", func(t *testing.T) {
		storetest.RunCopy(t, engine(), func(t testing.TB) hansard.Store {
			s, err := filestore.Open(t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	})
}
