package filestore

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
)

// TestGrowthReverse: a reverse read reads what it yields and at most a chunk more, however long
// the session is, and a page in the middle costs no more than forward.
func TestGrowthReverse(t *testing.T) {
	const limit, chunk = 60, 64 << 10
	ctx := context.Background()
	for _, l := range append(lengths, struct{ events, size int }{100_000, 300}) {
		log := buildLog("long", 5, l.events, func(i int) (hansard.Event, string) { return pad(i, l.size), "" })
		s, c := readOnly(t, withLogs(t, 1, map[hansard.SessionID][]byte{"long": log}))
		if _, err := s.Stat(ctx, "long"); err != nil { // a short log is checked whole once
			t.Fatal(err)
		}
		read := func(r hansard.Range) (n int) {
			t.Helper()
			next := l.events
			if r.Before > 0 {
				next = min(next, int(r.Before)-1)
			}
			c.reset()
			for e, err := range s.Read(ctx, "long", r) {
				if err != nil || int(e.Seq) != next {
					t.Fatalf("%d events, %+v: %+v, %v, want seq %d", l.events, r, e, err, next)
				}
				next--
				n++
			}
			return n
		}
		read(hansard.Range{Reverse: true, After: hansard.Seq(l.events)})
		opening := c.bytes
		line := len(log)/l.events + 1
		for _, n := range []int{1, limit, l.events} {
			if got := read(hansard.Range{Reverse: true, Limit: n}); got != min(n, l.events) {
				t.Errorf("%d events: %d read, want %d", l.events, got, n)
			}
			most := opening + int64(min(n, l.events)*line+chunk+2*line)
			t.Logf("%d events, %d bytes: the newest %d cost %d bytes in %d reads", l.events, len(log), n, c.bytes, c.reads)
			if c.bytes > most {
				t.Errorf("%d events: the newest %d cost %d bytes, want at most %d", l.events, n, c.bytes, most)
			}
		}
		for _, before := range []int{1, 2, l.events / 2, l.events, l.events + 1} {
			if got := read(hansard.Range{Reverse: true, Limit: limit, Before: hansard.Seq(before)}); got != min(limit, before-1) {
				t.Errorf("%d events: %d read before %d", l.events, got, before)
			}
			if most := int64(512<<10 + 4*limit*l.size); c.bytes > most {
				t.Errorf("%d events: the page before %d cost %d bytes, want at most %d", l.events, before, c.bytes, most)
			}
		}
	}
}

// readTo reads a range until its end or its error.
func readTo(s *Store, r hansard.Range) (seqs []hansard.Seq, damage *hansard.DamagedError, err error) {
	for e, err := range s.Read(context.Background(), "long", r) {
		if errors.As(err, &damage) {
			return seqs, damage, nil
		}
		if err != nil {
			return seqs, nil, err
		}
		seqs = append(seqs, e.Seq)
	}
	return seqs, nil, nil
}

// TestReverseMeetsDamage: damage in the middle of a log that is too long to be checked whole.
// While nobody knows of it, a reverse read yields what is after it and then the damage. From then
// on it yields only the damage, except for ranges that end before it.
func TestReverseMeetsDamage(t *testing.T) {
	const events = 12_000
	log := buildLog("long", 5, events, func(i int) (hansard.Event, string) { return pad(i, 400), "" })
	middle := bytes.LastIndexByte(log[:len(log)/2], '\n') + 1
	at, ok := sessionlog.QuickSeq(log[middle:])
	if !ok {
		t.Fatal("no line in the middle")
	}
	// Lines of x, which bisection notices; a flipped bit, which only the checksum shows; a
	// missing line, where every remaining line is sound by itself.
	crossed := bytes.Clone(log)
	for i := middle; i < middle+10_000; i++ {
		if crossed[i] != '\n' {
			crossed[i] = 'x'
		}
	}
	end := middle + bytes.IndexByte(log[middle:], '\n') + 1
	for what, log := range map[string][]byte{
		"crossed out": crossed, "flipped": changed(log, middle+100, log[middle+100]^1), "missing": append(bytes.Clone(log[:middle]), log[end:]...),
	} {
		t.Run(what, func(t *testing.T) {
			d := withLogs(t, 1, map[hansard.SessionID][]byte{"long": log})
			before := hansard.Range{Reverse: true, Before: at, Limit: 5}
			wantBefore := func(s *Store, when string) {
				t.Helper()
				seqs, damage, err := readTo(s, before)
				if err != nil || damage != nil || len(seqs) != 5 || seqs[0] != at-1 || seqs[4] != at-5 {
					t.Errorf("%s, before the damage: %d, %v, %v", when, seqs, damage, err)
				}
			}
			first, _ := opened(t, d, 1)
			wantBefore(first, "unknown")
			s, _ := opened(t, d, 2)
			_, known, err := readTo(s, hansard.Range{After: events, Reverse: true})
			if err != nil {
				t.Fatal(err)
			}
			seqs, damage, err := readTo(s, hansard.Range{Reverse: true})
			if err != nil || damage == nil || damage.SafeSeq != at-1 || damage.Offset != int64(middle) {
				t.Fatalf("%d events and %+v, %v, want damage behind %d", len(seqs), damage, err, at-1)
			}
			for i, seq := range seqs {
				if seq != hansard.Seq(events-i) || seq <= at {
					t.Fatalf("event %d has seq %d", i, seq)
				}
			}
			if known == nil && len(seqs) == 0 {
				t.Error("nothing was known, and nothing is given")
			}
			// It is known now.
			later, _ := opened(t, d, 3)
			for who, s := range map[string]*Store{"who found it": s, "another process": later} {
				for _, r := range []hansard.Range{{Reverse: true}, {Reverse: true, Limit: 1}, {Reverse: true, Before: at + 1}, {Reverse: true, After: at + 10}, {Reverse: true, Kinds: []string{"x"}}} {
					if seqs, damage, err := readTo(s, r); len(seqs) > 0 || damage == nil || err != nil {
						t.Errorf("%s: %+v gives %d events and %v, %v; want the damage alone", who, r, len(seqs), damage, err)
					}
				}
				wantBefore(s, who)
				// Forward, the events before it are yielded, and the damage only if the range
				// gets there.
				if seqs, damage, err := readTo(s, hansard.Range{After: at - 3}); len(seqs) != 2 || damage == nil || err != nil {
					t.Errorf("%s: forward %d and %v, %v", who, seqs, damage, err)
				}
				if seqs, damage, err := readTo(s, hansard.Range{After: at - 3, Before: at}); len(seqs) != 2 || damage != nil || err != nil {
					t.Errorf("%s: forward, before the damage: %d and %v, %v", who, seqs, damage, err)
				}
				if seqs, damage, err := readTo(s, hansard.Range{After: at - 3, Before: at + 1}); len(seqs) != 2 || damage == nil || err != nil {
					t.Errorf("%s: forward, into the damage: %d and %v, %v", who, seqs, damage, err)
				}
			}
		})
	}
}

// TestReverseFirstLink: if the oldest line of a reverse range does not follow the line before it,
// that is noticed, although that line is not yielded.
func TestReverseFirstLink(t *testing.T) {
	log := buildLog("long", 5, 12_000, func(i int) (hansard.Event, string) { return pad(i, 400), "" })
	middle := bytes.LastIndexByte(log[:len(log)/2], '\n') + 1
	at, _ := sessionlog.QuickSeq(log[middle:])
	end := middle + bytes.IndexByte(log[middle:], '\n') + 1
	missing := append(bytes.Clone(log[:middle]), log[end:]...) // the line with seq at
	s, _ := opened(t, withLogs(t, 1, map[hansard.SessionID][]byte{"long": missing}), 1)
	seqs, damage, err := readTo(s, hansard.Range{Reverse: true, After: at})
	if err != nil || damage == nil || damage.SafeSeq != at-1 {
		t.Errorf("after the missing line: %d events, %v, %v; want damage behind %d", len(seqs), damage, err, at-1)
	}
}
