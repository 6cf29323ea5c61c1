//go:build unix

package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"hansard"
	"hansard/filestore"
)

// mark is the data of the events these tests store: which batch an event belongs to, and enough
// to detect a changed byte.
type mark struct {
	Batch string `json:"b"`
	I     int    `json:"i"`
	N     int    `json:"n"` // events in the batch
	Bytes int    `json:"bytes"`
	Pad   string `json:"pad"`
}

func newMark(batch string, i, n, bytes int) mark {
	unit := fmt.Sprintf("%s/%d.", batch, i)
	return mark{batch, i, n, bytes, strings.Repeat(unit, bytes/len(unit)+1)[:bytes]}
}

func (m mark) encode() []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// stored is an event as the command prints it.
type stored struct {
	Seq  uint64
	Data mark
}

// parseEvents reads the output of show --json.
func parseEvents(out string) ([]stored, error) {
	var events []stored
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var e stored
		if err := dec.Decode(&e); err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// whole returns what is wrong with a read of a session: it must have the seqs 1, 2, 3, …, in
// whole batches, each once, with the bytes they were sent with.
func whole(events []stored) error {
	seen := map[string]bool{}
	for at := 0; at < len(events); {
		m := events[at].Data
		if seen[m.Batch] {
			return fmt.Errorf("batch %s is there twice, again at seq %d", m.Batch, events[at].Seq)
		}
		seen[m.Batch] = true
		if m.N < 1 || at+m.N > len(events) {
			return fmt.Errorf("batch %s of %d events is not whole at seq %d of %d", m.Batch, m.N, events[at].Seq, len(events))
		}
		for i := range m.N {
			e := events[at+i]
			if want := uint64(at + i + 1); e.Seq != want {
				return fmt.Errorf("seq %d where %d should be", e.Seq, want)
			}
			if want := newMark(m.Batch, i, m.N, e.Data.Bytes); e.Data != want {
				return fmt.Errorf("event %d of batch %s at seq %d is not what was sent", i, m.Batch, e.Seq)
			}
		}
		at += m.N
	}
	return nil
}

// readSession reads a session with the command.
func readSession(t *testing.T, store, session string) []stored {
	t.Helper()
	events, err := parseEvents(ok(t, store, "show", session, "--json"))
	if err != nil {
		t.Fatalf("session %s: %v", session, err)
	}
	return events
}

// place is where a batch was stored.
type place struct {
	session     string
	first, last uint64
}

// ledger records, outside of the store, what was promised.
type ledger struct {
	mu      sync.Mutex
	acked   map[string]place  // by batch
	refused map[string]string // batches that were definitely refused, and the message
	open    int               // outcomes that were reported as unknown
}

func newLedger() *ledger {
	return &ledger{acked: map[string]place{}, refused: map[string]string{}}
}

func (l *ledger) ack(batch string, p place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[batch] = p
}

func (l *ledger) acks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// receipt records a receipt that the command printed with --json.
func (l *ledger) receipt(batch, line string) error {
	var r struct {
		Session     string
		First, Last uint64
	}
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		return fmt.Errorf("receipt %q: %w", line, err)
	}
	l.ack(batch, place{r.Session, r.First, r.Last})
	return nil
}

// answer records the answer of a worker, and returns true for an acknowledgement:
//
//	ack BATCH SESSION FIRST LAST
//	err BATCH CODE MESSAGE…
func (l *ledger) answer(line string) bool {
	var batch, code string
	var p place
	if n, _ := fmt.Sscanf(line, "ack %s %s %d %d", &batch, &p.session, &p.first, &p.last); n == 4 {
		l.ack(batch, p)
		return true
	}
	if n, _ := fmt.Sscanf(line, "err %s %s", &batch, &code); n == 2 {
		l.refuse(batch, code, line)
	}
	return false
}

// refuse records an error. All errors but unknown promise that nothing is stored.
func (l *ledger) refuse(batch, code, words string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if code == "unknown" {
		l.open++
	} else {
		l.refused[batch] = words
	}
}

// check compares the store with what was promised: everything acknowledged is there, at its seqs;
// nothing refused is there, and nothing twice or in part; and verify finds nothing. It returns
// how many events there are.
func (l *ledger) check(t *testing.T, store string) (events int) {
	t.Helper()
	found := map[string]place{}
	for _, session := range list(t, store) {
		log := readSession(t, store, session)
		note(t, found, session, log)
		events += len(log)
	}
	l.compare(t, found)
	ok(t, store, "verify")
	return events
}

// look is check without a process for each question, for tests that check often. Sessions that
// have other events are left out.
func (l *ledger) look(t *testing.T, store string, except ...string) {
	t.Helper()
	s, err := filestore.Open(store, &filestore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found := map[string]place{}
	for f, err := range s.Verify(t.Context(), "") {
		if err != nil || f.Level == hansard.LevelDamage {
			t.Errorf("verify: %+v, %v", f, err)
		}
		if err != nil || f.Session == "" || slices.Contains(except, string(f.Session)) {
			continue
		}
		var log []stored
		for e, err := range s.Read(t.Context(), f.Session, hansard.Range{}) {
			var m mark
			if err == nil {
				err = json.Unmarshal(e.Data, &m)
			}
			if err != nil {
				t.Errorf("session %s: %v", f.Session, err)
				break
			}
			log = append(log, stored{uint64(e.Seq), m})
		}
		note(t, found, string(f.Session), log)
	}
	l.compare(t, found)
}

// note checks a read of a session and records which batches are in it.
func note(t *testing.T, found map[string]place, session string, log []stored) {
	t.Helper()
	if err := whole(log); err != nil {
		t.Errorf("session %s: %v", session, err)
	}
	for _, e := range log {
		if e.Data.I == 0 {
			found[e.Data.Batch] = place{session, e.Seq, e.Seq + uint64(e.Data.N) - 1}
		}
	}
}

func (l *ledger) compare(t *testing.T, found map[string]place) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for batch, want := range l.acked {
		if got, there := found[batch]; !there {
			t.Errorf("batch %s was acknowledged as %+v and is lost", batch, want)
		} else if got != want {
			t.Errorf("batch %s was acknowledged as %+v and is at %+v", batch, want, got)
		}
	}
	for batch, words := range l.refused {
		if got, there := found[batch]; there {
			t.Errorf("batch %s was refused (%s) and is at %+v", batch, words, got)
		}
	}
}

// list is the sessions that the command lists.
func list(t *testing.T, store string) (sessions []string) {
	t.Helper()
	for line := range strings.Lines(ok(t, store, "ls", "--json")) {
		var info struct{ ID string }
		if err := json.Unmarshal([]byte(line), &info); err != nil {
			t.Fatalf("ls: %v", err)
		}
		sessions = append(sessions, info.ID)
	}
	return sessions
}

// batchInput is a batch as append --jsonl reads it.
func batchInput(batch string, n, bytesEach int) string {
	var b bytes.Buffer
	for i := range n {
		b.Write(newMark(batch, i, n, bytesEach).encode())
		b.WriteByte('\n')
	}
	return b.String()
}
