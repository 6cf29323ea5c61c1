package pgstore

import (
	"testing"

	"hansard"
)

// TestForkBesideRedact: a fork that has copied events while they were being redacted, and waits
// for the redaction, copies them again: it has nothing that was redacted before it was made. The
// order is forced: another client has the parent's row, the redaction waits for it, and the fork
// waits behind the redaction, with its copies made.
func TestForkBesideRedact(t *testing.T) {
	s := newBlocking(t, "")
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{ID: "e", Data: []byte(`"hidden"`)}, {Data: []byte(`"stays"`)}}, Key: "k"}); err != nil {
		t.Fatal(err)
	}
	s.lock()
	redacted := later(func() (hansard.Receipt, error) {
		return s.Redact(t.Context(), "s", hansard.Redaction{Seqs: []hansard.Seq{1}})
	})
	s.waiting(1)
	forked := later(func() (hansard.Info, error) {
		return s.Fork(t.Context(), "s", hansard.Fork{As: "fork", At: 2})
	})
	s.waiting(2)
	s.exec("COMMIT")
	if o := soon(t, "the redaction", redacted); o.err != nil {
		t.Fatal(o.err)
	}
	if o := soon(t, "the fork", forked); o.err != nil || o.value.LastSeq != 3 {
		t.Fatalf("%+v, %v", o.value, o.err)
	}
	var events []hansard.Event
	for e, err := range s.Read(t.Context(), "fork", hansard.Range{Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	if first := events[0]; !first.Redacted || string(first.Data) != "null" {
		t.Errorf("the fork has what was redacted before it was made: %s", first.Data)
	}
	if string(events[1].Data) != `"stays"` {
		t.Errorf("the fork does not have what was not: %s", events[1].Data)
	}
	var copies int
	if err := s.conn.QueryRow(t.Context(), `SELECT count(*) FROM hansard_events e WHERE e::text LIKE '%hidden%'`).Scan(&copies); err != nil || copies != 0 {
		t.Errorf("%d rows have what was redacted (%v)", copies, err)
	}
	soundLogs(t, s.Store, map[hansard.SessionID]int{"s": 3, "fork": 3})
}
