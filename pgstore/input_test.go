package pgstore_test

import (
	"testing"

	"hansard"
	"hansard/internal/pgtest"
)

// TestSelectImpossible: a query for text that the database can't store returns nothing instead of
// a database error.
func TestSelectImpossible(t *testing.T) {
	s := open(t, pgtest.Shared(t).Schema(t))
	defer s.Close()
	_, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte("1")}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"\x00", "a\xffb"} {
		for e, err := range s.Read(t.Context(), "s", hansard.Range{Kinds: []string{bad}, Last: 3}) {
			t.Errorf("reading the kind %q gives %+v, %v", bad, e, err)
		}
		n := 0
		for _, err := range s.Read(t.Context(), "s", hansard.Range{Kinds: []string{bad, "message"}}) {
			if n++; err != nil {
				t.Errorf("reading the kinds %q and message: %v", bad, err)
			}
		}
		if n != 1 {
			t.Errorf("reading the kinds %q and message gives %d events", bad, n)
		}
		for _, q := range []hansard.Query{{Labels: map[string]string{"a": bad}}, {Labels: map[string]string{bad: "a"}}, {Text: bad}, {Labels: map[string]string{"": "a=b"}}} {
			for i, err := range s.List(t.Context(), q) {
				t.Errorf("listing %+v gives %+v, %v", q, i, err)
			}
		}
	}
}
