package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"hansard"
)

// Mark is the data of an event that knows where it belongs: which part of which
// batch of which writer. A log of such events can be judged by itself: half a batch, a
// duplicate and two interleaved batches are all visible.
type Mark struct {
	Writer string `json:"w"`
	Batch  int    `json:"b"`
	Part   int    `json:"i"` // 1 to Of
	Of     int    `json:"n"`
	Pad    string `json:"pad,omitempty"`
}

// Marked makes the events of one batch, each padded by about padBytes.
func Marked(writer string, batch, events, padBytes int) []hansard.Event {
	out := make([]hansard.Event, events)
	for i := range out {
		m := Mark{Writer: writer, Batch: batch, Part: i + 1, Of: events, Pad: strings.Repeat("x", padBytes)}
		data, err := json.Marshal(m)
		if err != nil {
			panic(err) // strings and numbers
		}
		out[i] = hansard.Event{Role: "assistant", Author: writer, Data: data}
	}
	return out
}

// Ack is an acknowledgement to a writer of marked batches.
type Ack struct {
	Writer string `json:"writer"`
	Batch  int    `json:"batch"`
	hansard.Receipt
}

type batchName struct {
	writer string
	batch  int
}

// CheckWhole checks that marked events are a run of a session that ends with a whole
// batch: seqs without gaps, batches complete, in order and not interleaved. Only the
// first batch may lack its beginning, unless it starts at seq 1.
func CheckWhole(events []hansard.Event) error {
	var before Mark
	for i, e := range events {
		m, err := markOf(e)
		if err != nil {
			return err
		}
		switch {
		case i > 0 && e.Seq != events[i-1].Seq+1:
			return fmt.Errorf("seq %d follows seq %d", e.Seq, events[i-1].Seq)
		case i == 0 && e.Seq == 1 && m.Part != 1:
			return fmt.Errorf("the session begins with part %d of %d (%s)", m.Part, m.Of, name(m))
		case i > 0 && before.Part < before.Of && (name(m) != name(before) || m.Part != before.Part+1):
			return fmt.Errorf("seq %d: part %d of %s comes after part %d of %d of %s",
				e.Seq, m.Part, name(m), before.Part, before.Of, name(before))
		case i > 0 && before.Part == before.Of && m.Part != 1:
			return fmt.Errorf("seq %d: %s begins with part %d of %d", e.Seq, name(m), m.Part, m.Of)
		}
		before = m
	}
	if before.Part < before.Of {
		return fmt.Errorf("the reading ends with part %d of %d of %s", before.Part, before.Of, name(before))
	}
	return nil
}

// CheckLog checks the whole log of one session, of marked events only, against its
// writers' acknowledgements: no gaps from 1 on, whole batches, each at most once, each
// writer's in the order it wrote them, and every acknowledged one exactly where its
// receipt says. Batches that were stored but not acknowledged are allowed: their
// outcome was unknown.
func CheckLog(log []hansard.Event, acks []Ack) error {
	if err := CheckWhole(log); err != nil {
		return err
	}
	if len(log) > 0 && log[0].Seq != 1 {
		return fmt.Errorf("the log begins at seq %d", log[0].Seq)
	}
	first := make(map[batchName]hansard.Seq)
	newest := make(map[string]int)
	for _, e := range log {
		m, _ := markOf(e) // checked above
		if m.Part != 1 {
			continue
		}
		if at, twice := first[name(m)]; twice {
			return fmt.Errorf("%s is stored twice, at seq %d and %d", name(m), at, e.Seq)
		}
		if last, ok := newest[m.Writer]; ok && m.Batch < last {
			return fmt.Errorf("%s is stored after batch %d of the same writer", name(m), last)
		}
		first[name(m)], newest[m.Writer] = e.Seq, m.Batch
	}
	return checkAcks(log, first, acks)
}

func checkAcks(log []hansard.Event, first map[batchName]hansard.Seq, acks []Ack) error {
	written := make(map[batchName]bool)
	for _, a := range acks {
		n := batchName{a.Writer, a.Batch}
		at, ok := first[n]
		if !ok {
			return fmt.Errorf("%s was acknowledged at seq %d and is not in the log of %d events", n, a.First, len(log))
		}
		m, _ := markOf(log[at-1])
		if last := at + hansard.Seq(m.Of) - 1; a.First != at || a.Last != last {
			return fmt.Errorf("%s was acknowledged at %d to %d and is at %d to %d", n, a.First, a.Last, at, last)
		}
		if !a.Replayed && written[n] {
			return fmt.Errorf("%s was acknowledged as new twice", n)
		}
		written[n] = written[n] || !a.Replayed
	}
	return nil
}

func name(m Mark) batchName { return batchName{m.Writer, m.Batch} }

func (n batchName) String() string { return fmt.Sprintf("batch %d of %s", n.batch, n.writer) }

// markOf reads the mark of an event and checks that its padding is whole. It does not
// decode the padding: readers do this for megabytes, again and again. A turn record is
// a batch of its own.
func markOf(e hansard.Event) (Mark, error) {
	if e.Kind == hansard.KindTurn {
		return Mark{Writer: "the store", Batch: int(e.Seq), Part: 1, Of: 1}, nil
	}
	var m Mark
	data, padding, padded := bytes.Cut(e.Data, []byte(`,"pad":"`))
	whole := true
	if padded {
		data = append(slices.Clip(data), '}')
		whole = string(bytes.TrimLeft(padding, "x")) == `"}`
	}
	if err := json.Unmarshal(data, &m); err != nil || m.Part < 1 || m.Part > m.Of || !whole {
		return m, fmt.Errorf("seq %d has no whole mark: %.100s", e.Seq, e.Data)
	}
	return m, nil
}
