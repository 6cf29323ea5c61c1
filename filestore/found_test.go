package filestore

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
)

// TestDamageFoundByAReaderStays: damage found by a reader, which checks every line in full, is
// not forgotten when a quick check finds nothing: the log takes no writes.
func TestDamageFoundByAReaderStays(t *testing.T) {
	ctx := context.Background()
	log := buildLog("s", 5, 6, func(i int) (hansard.Event, string) { return pad(i, 10), "" })
	// Correct checksums around invalid JSON.
	log = rechained(bytes.TrimSuffix(bytes.Replace(log, []byte(`"data":"000002 `), []byte(`"data":p"00002 `), 1), []byte("\n")))
	d := withLogs(t, 1, map[hansard.SessionID][]byte{"s": log})
	s, _ := opened(t, d, 1)
	read := func() error {
		for _, err := range s.Read(ctx, "s", hansard.Range{}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := read(); !errors.Is(err, hansard.ErrDamaged) {
		t.Fatalf("read: %v", err)
	}
	if info, err := s.Stat(ctx, "s"); err != nil || info.Damage == nil {
		t.Errorf("stat: %+v, %v", info, err)
	}
	if _, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("x")}}); !errors.Is(err, hansard.ErrDamaged) {
		t.Errorf("append: %v, want ErrDamaged", err)
	}
	if now, _ := d.CacheBytes(sessionlog.Path("s")); !bytes.Equal(now, log) {
		t.Error("the damaged log was written to")
	}
}
