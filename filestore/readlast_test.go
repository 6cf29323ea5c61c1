package filestore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// forge puts invalid JSON into line n, and gives it and the lines after it correct checksums.
func forge(log []byte, lines []int, n int) []byte {
	log = slices.Clone(log)
	bad := slices.Clone(log[lines[n]:lines[n+1]])
	bad[len(bad)-1-sessionlog.SuffixWidth-1] = '{' // in place of a quote
	prev := sessionlog.LineCRC(log[:lines[n]])
	for i, at := n, lines[n]; i < len(lines); i++ {
		end := len(log)
		if i+1 < len(lines) {
			end = lines[i+1]
		}
		body := slices.Clone(log[at : end-1-sessionlog.SuffixWidth])
		if i == n {
			body = bad[:len(bad)-1-sessionlog.SuffixWidth]
		}
		line := sessionlog.AppendSuffix(body, 0, prev)
		copy(log[at:end], line)
		prev = sessionlog.LineCRC(line)
		at = end
	}
	return log
}

// kindLog is a log of n events, one per batch, of which those in marked are summaries.
func kindLog(n, size int, marked ...int) (log []byte, lines []int) {
	log = buildLog("s", 5, n, func(i int) (hansard.Event, string) {
		e := pad(i, size)
		if slices.Contains(marked, i+1) {
			e.Kind = hansard.KindSummary
		}
		return e, ""
	})
	lines = []int{0}
	for i, c := range log[:len(log)-1] {
		if c == '\n' {
			lines = append(lines, i+1)
		}
	}
	return log, lines
}

// TestLastLeavesTheRest: reading the last events of a session takes few reads and decodes no line
// before them except the one they follow; damage among them is reported.
func TestLastLeavesTheRest(t *testing.T) {
	log, lines := kindLog(20_000, 300)
	for bad, want := range map[int]bool{1: false, 19_900: false, 19_949: false, 19_951: true, 19_999: true} {
		s, c := opened(t, withLogs(t, 1, map[hansard.SessionID][]byte{"s": forge(log, lines, bad)}), 2)
		c.reset()
		n := 0
		var err error
		for _, err = range s.Read(t.Context(), "s", hansard.Range{Last: 50}) {
			if err == nil {
				n++
			}
		}
		if got := errors.Is(err, hansard.ErrDamaged); got != want || !want && (err != nil || n != 50) {
			t.Errorf("line %d is no JSON: %d events, %v", bad, n, err)
		}
		if !want && (c.files["sessions/s.jsonl"] > 256<<10 || c.reads > 20) {
			t.Errorf("line %d is no JSON: the last 50 of 300 bytes took %d reads, %v", bad, c.reads, c.files)
		}
		t.Logf("line %d is no JSON: %d reads, %v", bad, c.reads, c.files)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLastOfKind: with a filter, the lines are checked from the first one yielded on; of those
// before it, only the one that it follows.
func TestLastOfKind(t *testing.T) {
	log, lines := kindLog(20_000, 300, 100, 15_000, 18_000)
	for bad, want := range map[int]bool{50: false, 14_998: false, 15_000: true, 16_000: true, 19_000: true} {
		n, err := 0, error(nil)
		s, c := opened(t, withLogs(t, 1, map[hansard.SessionID][]byte{"s": forge(log, lines, bad)}), 2)
		c.reset()
		for e, readErr := range s.Read(t.Context(), "s", hansard.Range{Last: 2, Kinds: []string{hansard.KindSummary}}) {
			if err = readErr; err == nil && e.Kind == hansard.KindSummary {
				n++
			}
		}
		if got := errors.Is(err, hansard.ErrDamaged); got != want || !want && (err != nil || n != 2) {
			t.Errorf("line %d is no JSON: %d events, %v", bad, n, err)
		}
		if most := int64(2*(len(log)-lines[15_000]) + 512<<10); !want && c.bytes > most {
			t.Errorf("line %d is no JSON: %d bytes were read, want at most %d", bad, c.bytes, most)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSkippedIsNotDecoded: the beginning of a range is found from the end without decoding the
// lines on the way, and lines after the events that are yielded are not decoded either.
func TestSkippedIsNotDecoded(t *testing.T) {
	log, lines := kindLog(20_000, 300, 100, 15_000, 18_000)
	s, _ := opened(t, withLogs(t, 1, map[hansard.SessionID][]byte{"s": forge(log, lines, 19_000)}), 2)
	defer s.Close()
	for _, r := range []hansard.Range{{Last: 2, Kinds: []string{hansard.KindSummary}, Limit: 1}, {FromKind: hansard.KindSummary, Limit: 900}} {
		n := 0
		for _, err := range s.Read(t.Context(), "s", r) {
			if n++; err != nil {
				t.Fatalf("%+v: event %d: %v", r, n, err)
			}
		}
		if n != r.Limit {
			t.Errorf("%+v: %d events", r, n)
		}
	}
}

// TestLocate: every line of logs of all shapes is found, and no line that is not there.
func TestLocate(t *testing.T) {
	for _, l := range []struct{ events, size int }{{1, 10}, {2, 10}, {3, 100 << 10}, {700, 300}, {5_000, 10}, {40, 70 << 10}} {
		log, lines := kindLog(l.events, l.size)
		d := withLogs(t, 1, map[hansard.SessionID][]byte{"s": log})
		s, _ := opened(t, d, 2)
		o, err := s.reader.openLogForRead(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		for seq := 1; seq <= l.events; seq++ {
			at, ok := locate(o, o.tail, hansard.Seq(seq))
			end := len(log)
			if seq < l.events {
				end = lines[seq+1]
			}
			if !ok || at.Last.Seq != hansard.Seq(seq) || at.LastAt != int64(lines[seq]) || at.End != int64(end) {
				t.Fatalf("%+v: seq %d is found at %+v, %v", l, seq, at, ok)
			}
		}
		for _, seq := range []hansard.Seq{0, hansard.Seq(l.events + 1)} {
			if at, ok := locate(o, o.tail, seq); ok {
				t.Errorf("%+v: seq %d is found at %+v", l, seq, at)
			}
		}
		if err := errors.Join(o.f.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadOfTruncated: a log that is truncated while it is read does not look complete.
func TestReadOfTruncated(t *testing.T) {
	d := vfs.NewDisk(1)
	s := openSim(t, d.Process("a"), 1)
	const events = 30
	for i := range events {
		say(t, s, "s", nil, "%d %s", i, strings.Repeat("x", 8000))
	}
	hand, err := d.Process("hand").Open(sessionlog.Path("s"), 0)
	want(t, "open", err, nil)
	heard := 0
	var end error
	for _, err := range s.Read(context.Background(), "s", hansard.Range{}) {
		if end = err; err != nil {
			break
		}
		if heard++; heard == 1 {
			want(t, "truncate", hand.Truncate(100_000), nil)
		}
	}
	if heard >= events {
		t.Fatal("all of the log was read at once")
	}
	want(t, "read", end, hansard.ErrDamaged)
}
