package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/pgstore"
)

// TestProbe: a probe commits, leaves nothing visible, and fails where nothing can be written.
func TestProbe(t *testing.T) {
	server := pgtest.Shared(t)
	address := server.Schema(t)
	s := open(t, address)
	defer s.Close()
	before := time.Now()
	for range 3 {
		if err := s.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	server.Until(t, "SELECT count(*) = 1 AND max(seen) > '"+before.Add(-time.Minute).UTC().Format(time.RFC3339)+"' FROM "+schemaOf(address)+".hansard_waiting")
	server.Until(t, "SELECT (SELECT count(*) FROM "+schemaOf(address)+".hansard_heads) + (SELECT count(*) FROM "+schemaOf(address)+".hansard_events) = 0")
	for info, err := range s.List(t.Context(), hansard.Query{}) {
		t.Errorf("listed: %+v, %v", info, err)
	}
	reader, err := pgstore.Open(t.Context(), address, &pgstore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := reader.Probe(t.Context()); !errors.Is(err, hansard.ErrReadOnly) {
		t.Errorf("a store that can only be read: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Probe(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	// A database that can be read but not written, like a standby.
	only := address + "&default_transaction_read_only=on"
	o, err := pgstore.Open(t.Context(), only, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.Probe(t.Context()); err == nil {
		t.Error("a probe of a database that can only be read succeeded")
	}
}
