package importer

import (
	"context"
	"fmt"
	"testing"

	"hansard"
	"hansard/memstore"
)

// database is a source with many sessions, whose records come in the order that next says.
type database struct {
	claude
	records int
	next    func(i int) string
	held    func(i int)
}

func (d database) Read(_ context.Context, _ *Input, emit func(Record) error) error {
	for i := range d.records {
		rec := Record{Session: d.next(i), Event: hansard.Event{ID: fmt.Sprint(i), Kind: "message", Data: []byte("1")}, Covers: i > d.records-10}
		if err := emit(rec); err != nil {
			return err
		}
		d.held(i)
	}
	return nil
}

// TestManySessionsInOneSource: what is held does not grow with the number of sessions in a
// database, whether they come one after the other or all at once, and nothing is lost.
func TestManySessionsInOneSource(t *testing.T) {
	for name, next := range map[string]func(i int) string{
		"one after the other": func(i int) string { return fmt.Sprint("s", i/10) },
		"all at once":         func(i int) string { return fmt.Sprint("s", i%100) },
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			defer store.Close()
			j := &job{run: &run{Engine: &Engine{Store: store}}, sessions: map[string]*delivery{}}
			most := 0
			f := database{records: 1000, next: next, held: func(int) { most = max(most, len(j.sessions)) }}
			s := &Source{Format: f, Session: "db"}
			j.report = Report{Source: s, Session: SessionID(f, s.Session)}
			if err := j.read(context.Background(), s); err != nil {
				t.Fatal(err)
			}
			if most > heldSessions || j.report.Added != 1000 {
				t.Errorf("%d sessions were held, %d events added", most, j.report.Added)
			}
			// What a compaction covers is known after its session was let go.
			for i := 991; i < 1000; i++ {
				info, err := store.Stat(context.Background(), SessionID(f, next(i)))
				if err != nil || string(info.State) == "null" {
					t.Errorf("%s: the state is %s, %v", next(i), info.State, err)
				}
			}
		})
	}
}
