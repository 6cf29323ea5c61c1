package filestore

import (
	"errors"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/sessionlog"
)

// batchLog is a log of batches with these numbers of events, and the offset of each line; the
// first line is the header.
func batchLog(id hansard.SessionID, size int, batches ...int) (log []byte, lines []int) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	lines = []int{0}
	log = sessionlog.AppendHeader(nil, id, 5, now, 0, hansard.Meta{})
	for _, n := range batches {
		for left := n - 1; left >= 0; left-- {
			events := engine.Normalize(&hansard.Batch{Events: []hansard.Event{pad(len(lines), size)}})
			st := sessionlog.Stamp{Seq: hansard.Seq(len(lines)), Time: now.Format(sessionlog.TimeLayout), Left: left, Prev: sessionlog.LineCRC(log)}
			lines = append(lines, len(log))
			log = sessionlog.AppendEvent(log, &st, sessionlog.EncodeBody(nil, &events[0], "", ""))
		}
	}
	return log, lines
}

// readUntilError returns how many events a read of a log yields, each at its seq, and how it
// ends.
func readUntilError(t *testing.T, log []byte) (n int, err error) {
	t.Helper()
	s, _ := opened(t, withLogs(t, 1, map[hansard.SessionID][]byte{"s": log}), 2)
	defer s.Close()
	for e, err := range s.Read(t.Context(), "s", hansard.Range{}) {
		if err != nil {
			return n, err
		}
		if n++; int(e.Seq) != n {
			t.Fatalf("event %d comes as number %d", e.Seq, n)
		}
	}
	return n, nil
}

// TestFirstOfLongBatch: the first event of a batch of megabytes is yielded after only a part of
// the batch was read, wherever the batch is in the log.
func TestFirstOfLongBatch(t *testing.T) {
	for name, batches := range map[string][]int{"last": {20, 10_000}, "in the middle": {20, 10_000, 3, 5_000, 1}} {
		log, _ := batchLog("s", 600, batches...)
		if len(log) < checkWhole {
			t.Fatalf("the log has %d bytes: it is read whole before", len(log))
		}
		s, c := opened(t, withLogs(t, 1, map[hansard.SessionID][]byte{"s": log}), 2)
		c.reset()
		first := int64(0)
		n := 0
		for e, err := range s.Read(t.Context(), "s", hansard.Range{After: 20, Before: 10_021}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; int(e.Seq) != 20+n {
				t.Fatalf("event %d comes as number %d", e.Seq, n)
			}
			if n == 1 {
				first = c.bytes
			}
		}
		if n != 10_000 {
			t.Errorf("%s: %d events", name, n)
		}
		t.Logf("%s: the first event after %d bytes, the last after %d", name, first, c.bytes)
		if limit := int64(3 * holdBytes); first > limit {
			t.Errorf("%s: the first event comes after %d bytes, want at most %d", name, first, limit)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTornLongBatch: a batch without its last line does not exist, however long it is and
// whatever it lacks. At the end of the log it is unfinished, in the middle it is damage.
func TestTornLongBatch(t *testing.T) {
	log, lines := batchLog("s", 600, 20, 10_000)
	for _, cut := range []int{len(log) - 1, lines[10_020] + 7, lines[10_020], lines[9_000], lines[22]} {
		if n, err := readUntilError(t, log[:cut]); n != 20 || err != nil {
			t.Errorf("cut at %d: %d events, %v; want 20", cut, n, err)
		}
	}
	log, lines = batchLog("s", 600, 20, 10_000, 2)
	for _, lost := range [][2]int{{10_020, 10_021}, {9_000, 10_021}, {10_020, 10_022}} {
		torn := append(append([]byte{}, log[:lines[lost[0]]]...), log[lines[lost[1]]:]...)
		n, err := readUntilError(t, torn)
		var d *hansard.DamagedError
		if n != 20 || !errors.As(err, &d) || d.SafeSeq != 20 {
			t.Errorf("without lines %v: %d events, %v; want 20, and damage", lost, n, err)
		}
	}
	// A line of another batch where it should end.
	other := log[:lines[10_020]]
	for seq, left := hansard.Seq(10_020), 1; left >= 0; seq, left = seq+1, left-1 {
		st := sessionlog.Stamp{Seq: seq, Time: "2026-03-01T00:00:00.000000Z", Left: left, Prev: sessionlog.LineCRC(other)}
		other = sessionlog.AppendEvent(other, &st, []byte(`,"kind":"message","data":1`))
	}
	if n, err := readUntilError(t, other); n != 20 || !errors.Is(err, hansard.ErrDamaged) {
		t.Errorf("with another batch where it should end: %d events, %v; want 20, and damage", n, err)
	}
}

// TestDamageInLongBatch: a read may yield the events before the damage in a long batch that is
// complete. It never yields a damaged event or any after it, and none of a batch short enough to
// be held back.
func TestDamageInLongBatch(t *testing.T) {
	for _, batch := range []int{200, 10_000} {
		log, lines := batchLog("s", 600, 20, batch, 10_000)
		for _, bad := range []int{21, 22, 20 + batch/2, 20 + batch - 1, 20 + batch} {
			broken := append([]byte{}, log...)
			broken[lines[bad]+200] ^= 1
			n, err := readUntilError(t, broken)
			var d *hansard.DamagedError
			if !errors.As(err, &d) || d.SafeSeq != 20 || d.Offset != int64(lines[bad]) {
				t.Errorf("line %d of a batch of %d: %v", bad, batch, err)
			}
			if most := 20; n < 20 || n >= bad || batch == 200 && n != most {
				t.Errorf("line %d of a batch of %d: %d events are given", bad, batch, n)
			}
		}
	}
}
