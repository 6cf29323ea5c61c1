package pgstore_test

import (
	"testing"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/pgstore"
)

// TestFormatsOfTheRole: whatever encoding and date style are the defaults of the role, texts are
// stored and read as they are.
func TestFormatsOfTheRole(t *testing.T) {
	const said = `"süß, 20 €"`
	server := pgtest.Shared(t)
	for setting, mode := range map[string]string{"client_encoding = 'LATIN1'": "", "datestyle = 'German'": "&default_query_exec_mode=exec"} {
		t.Run(setting, func(t *testing.T) {
			address := server.Schema(t)
			role := "formats_" + schemaOf(address)
			server.Exec(t, "CREATE ROLE "+role+" SUPERUSER LOGIN")
			server.Exec(t, "ALTER ROLE "+role+" SET "+setting)
			s := open(t, as(t, address, role)+mode)
			defer s.Close()
			for range 2 {
				if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte(said)}}}); err != nil {
					t.Fatal(err)
				}
			}
			other := open(t, address)
			defer other.Close()
			for _, reader := range []*pgstore.Store{s, other} {
				for e, err := range reader.Read(t.Context(), "s", hansard.Range{}) {
					if err != nil || string(e.Data) != said {
						t.Errorf("%s, %v", e.Data, err)
					}
				}
				verifies(t, reader, "")
			}
		})
	}
}
