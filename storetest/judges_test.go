package storetest

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"hansard"
)

// stored makes a log of batches of two events by two writers in turn.
func stored(batches int) (log []hansard.Event, acks []Ack) {
	for i := range batches {
		w := []string{"a", "b"}[i%2]
		for _, e := range Marked(w, i, 2, 10) {
			e.Seq = hansard.Seq(len(log) + 1)
			log = append(log, e)
		}
		last := hansard.Seq(len(log))
		acks = append(acks, Ack{w, i, hansard.Receipt{Session: "s", First: last - 1, Last: last}})
	}
	return log, acks
}

func TestCheckLog(t *testing.T) {
	renumber := func(log []hansard.Event) []hansard.Event {
		for i := range log {
			log[i].Seq = hansard.Seq(i + 1)
		}
		return log
	}
	for _, c := range []struct {
		what   string
		change func(log []hansard.Event, acks []Ack) ([]hansard.Event, []Ack)
		want   string // in the error; none when empty
	}{
		{"sound", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) { return l, a }, ""},
		{"not all acknowledged", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) { return l, a[2:] }, ""},
		{"a replay besides", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) {
			again := a[1]
			again.Replayed = true
			return l, append(a, again)
		}, ""},
		{"nothing", func([]hansard.Event, []Ack) ([]hansard.Event, []Ack) { return nil, nil }, ""},
		{"an event lost", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) { return slices.Delete(l, 4, 5), a }, "follows seq"},
		{"an event lost, renumbered", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) {
			return renumber(slices.Delete(l, 4, 5)), a
		}, "begins with part 2"},
		{"the end torn", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) { return l[:len(l)-1], a }, "ends with part 1 of 2"},
		{"the beginning torn", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) { return renumber(l[1:]), a }, "begins with part 2"},
		{"the beginning lost", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) { return l[2:], a }, "begins at seq 3"},
		{"two mixed up", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) {
			l[1].Data, l[2].Data = l[2].Data, l[1].Data
			return l, a
		}, "comes after part 1"},
		{"a batch twice", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) {
			return renumber(append(l, l[4:6]...)), a
		}, "stored twice"},
		{"out of order", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) {
			return renumber(slices.Concat(l[:2], l[8:10], l[2:8], l[10:])), nil
		}, "after batch"},
		{"acknowledged and lost", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) { return l[:len(l)-2], a }, "is not in the log"},
		{"acknowledged elsewhere", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) {
			a[3].First, a[3].Last = a[3].First+2, a[3].Last+2
			return l, a
		}, "was acknowledged at"},
		{"acknowledged as new twice", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) { return l, append(a, a[1]) }, "as new twice"},
		{"padding torn", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) {
			l[3].Data = []byte(strings.Replace(string(l[3].Data), "xxx", "x\x00x", 1))
			return l, a
		}, "no whole mark"},
		{"padding shifted", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) {
			l[3].Data = []byte(string(l[3].Data) + `{"w":"a"}`)
			return l, a
		}, "no whole mark"},
		{"no mark", func(l []hansard.Event, a []Ack) ([]hansard.Event, []Ack) { l[3].Data = []byte("{}"); return l, a }, "no whole mark"},
	} {
		err := CheckLog(c.change(stored(6)))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

func TestCheckHistory(t *testing.T) {
	log, _ := stored(3) // seqs 1 to 6
	sums := prefixSums(log)
	wrote := func(begin, end int, first, last hansard.Seq) op {
		return op{begin: time.Duration(begin), end: time.Duration(end), first: first, last: last, what: "a write"}
	}
	saw := func(begin, end int, last hansard.Seq) op {
		return op{begin: time.Duration(begin), end: time.Duration(end), last: last, what: "a look"}
	}
	read := func(begin, end int, last hansard.Seq) op {
		o := saw(begin, end, last)
		o.sum = sums[last]
		return o
	}
	other := saw(0, 90, 4)
	other.sum = sums[3]
	for _, c := range []struct {
		what string
		ops  []op
		ok   bool
	}{
		{"one after the other", []op{wrote(0, 10, 1, 2), saw(11, 12, 2), wrote(20, 30, 3, 4), read(31, 32, 4), wrote(40, 50, 5, 6), read(60, 70, 6)}, true},
		{"at once, in any order", []op{wrote(0, 50, 5, 6), wrote(0, 50, 1, 2), wrote(0, 50, 3, 4), saw(0, 50, 0), saw(10, 20, 4), read(0, 50, 2)}, true},
		{"a write seen before it returned", []op{wrote(0, 50, 1, 2), saw(10, 20, 2), saw(30, 40, 2)}, true},
		{"writes the wrong way round", []op{wrote(0, 10, 3, 4), wrote(20, 30, 1, 2)}, false},
		{"a stale look", []op{wrote(0, 10, 1, 2), saw(20, 30, 0)}, false},
		{"a look at half of it", []op{wrote(0, 10, 1, 2), saw(20, 30, 1)}, false},
		{"looks that go back", []op{wrote(0, 90, 1, 2), saw(10, 20, 2), saw(30, 40, 0)}, false},
		{"a write before what was seen", []op{saw(0, 10, 4), wrote(20, 30, 3, 4)}, false},
		{"a look into the future", []op{saw(0, 10, 6), wrote(20, 30, 5, 6)}, false},
		{"one seq for two", []op{wrote(0, 50, 1, 2), wrote(0, 50, 2, 3)}, false},
		{"past the log", []op{saw(0, 10, 7)}, false},
		{"other events", []op{other}, false},
	} {
		if err := checkHistory(log, c.ops); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestPlaceTurns(t *testing.T) {
	record := func(seq hansard.Seq, change string, g hansard.Grant) hansard.Event {
		e := (&hansard.TurnRecord{Change: change}).Event()
		e.Seq, e.Turn = seq, g
		return e
	}
	log := []hansard.Event{
		record(1, hansard.TurnGranted, "1-a"), {Seq: 2}, record(3, hansard.TurnReleased, "1-a"), {Seq: 4},
		record(5, hansard.TurnGranted, "2-b"), {Seq: 6}, record(7, hansard.TurnStolen, "3-c"), {Seq: 8},
	}
	wrote := func(begin, end int, at hansard.Seq) op {
		return op{begin: time.Duration(begin), end: time.Duration(end), first: at, last: at, what: "a write"}
	}
	released := func(begin, end int, g hansard.Grant) op {
		return op{begin: time.Duration(begin), end: time.Duration(end), grant: g, released: true, what: "a release"}
	}
	refused := func(begin, end int, at hansard.Seq, g hansard.Grant) op {
		return op{begin: time.Duration(begin), end: time.Duration(end), last: at, grant: g, what: "a refusal"}
	}
	for _, c := range []struct {
		what string
		ops  []op
		ok   bool
	}{
		{"one after the other", []op{wrote(0, 1, 1), refused(2, 3, 1, "1-a"), released(4, 5, "1-a"), wrote(6, 7, 4)}, true},
		{"refused in the last moment", []op{wrote(0, 1, 6), refused(2, 9, 5, "2-b"), wrote(3, 8, 7)}, true},
		{"refused by one that holds it at the end", []op{wrote(0, 1, 8), refused(2, 3, 7, "3-c")}, true},
		{"refused after the release", []op{released(0, 1, "1-a"), refused(2, 3, 1, "1-a")}, false},
		{"refused after the theft", []op{wrote(0, 1, 7), refused(2, 3, 5, "2-b")}, false},
		{"refused before the grant", []op{refused(0, 1, 5, "2-b"), wrote(2, 3, 4)}, false},
		{"a release after what came behind it", []op{wrote(0, 1, 4), released(2, 3, "1-a")}, false},
		{"a release that is not in the log", []op{released(0, 1, "3-c")}, false},
	} {
		err := placeTurns(log, c.ops)
		if err == nil {
			err = checkHistory(log, c.ops)
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestCheckStints(t *testing.T) {
	var log []hansard.Event
	add := func(g hansard.Grant, e hansard.Event) {
		e.Seq, e.Turn = hansard.Seq(len(log)+1), g
		log = append(log, e)
	}
	said := func(name, part string) hansard.Event {
		return hansard.Event{Kind: hansard.KindMessage, Data: []byte(show(turnAct{name, part}))}
	}
	a, b := hansard.Grant("1-000000000000000a"), hansard.Grant("2-000000000000000b")
	add(a, (&hansard.TurnRecord{Change: hansard.TurnGranted, Holder: hansard.Holder{Label: "ann"}}).Event())
	add(a, said("ann", "begin"))
	add(a, said("ann", "end"))
	add(b, (&hansard.TurnRecord{Change: hansard.TurnStolen, Holder: hansard.Holder{Label: "bob"}, From: a, Why: hansard.TurnStolen, Reason: "r"}).Event())
	add(b, said("bob", "begin"))
	sound := []stint{{Name: "ann", Grant: a, Whole: true, Begin: 0, End: 2}, {Name: "bob", Grant: b, Begin: 2, End: 4}}
	for _, c := range []struct {
		what   string
		change func(log []hansard.Event, stints []stint)
		ok     bool
	}{
		{"sound", func([]hansard.Event, []stint) {}, true},
		{"a stale write", func(l []hansard.Event, _ []stint) { l[4].Turn = a }, false},
		{"a write without a grant", func(l []hansard.Event, _ []stint) { l[2].Turn = "" }, false},
		{"another's words", func(l []hansard.Event, _ []stint) { l[2] = l[4]; l[2].Seq, l[2].Turn = 3, a }, false},
		{"an end without a beginning", func(l []hansard.Event, _ []stint) { l[4].Data = l[2].Data }, false},
		{"not whole", func(_ []hansard.Event, s []stint) { s[1].Whole = true }, false},
		{"one grant for two", func(_ []hansard.Event, s []stint) { s[1].Grant = a }, false},
		{"another's grant", func(_ []hansard.Event, s []stint) { s[0].Name = "cid" }, false},
		{"numbers that repeat", func(l []hansard.Event, _ []stint) { l[3].Turn = "1-000000000000000b" }, false},
		{"a theft without a reason", func(l []hansard.Event, _ []stint) {
			e := (&hansard.TurnRecord{Change: hansard.TurnStolen, Holder: hansard.Holder{Label: "bob"}, From: a, Why: hansard.TurnStolen}).Event()
			l[3].Data = e.Data
		}, false},
		{"a take-over that does not say of whom", func(l []hansard.Event, _ []stint) { l[3].Data = l[0].Data }, false},
		{"two at once", func(_ []hansard.Event, s []stint) { s[1].Begin = 1 }, false},
	} {
		l, s := slices.Clone(log), slices.Clone(sound)
		c.change(l, s)
		err := checkStints(l, s)
		if err == nil {
			err = checkApart(s)
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestSkipsSayWhy(t *testing.T) {
	e := sharedEngine(plant{})
	e.Reopen, e.Another, e.Address = nil, nil, nil
	for _, c := range []Case{{needs: needsReopen}, {needs: needsAnother | needsReopen}, {needs: needsProcesses}} {
		r := record(t, func(t testing.TB) { c.check(t, e) })
		if !r.Skipped() || !strings.Contains(strings.Join(r.said, ""), "has no") {
			t.Errorf("case that needs %d: skipped %v, %q", c.needs, r.Skipped(), r.said)
		}
	}
}

// TestDiffEventSeesEveryField: what compares events in this package compares all of
// them, also a field that was added since.
func TestDiffEventSeesEveryField(t *testing.T) {
	var a, b hansard.Event
	Full(&a, 1)
	Full(&b, 2)
	for i := range reflect.TypeFor[hansard.Event]().NumField() {
		name := reflect.TypeFor[hansard.Event]().Field(i).Name
		changed := a
		reflect.ValueOf(&changed).Elem().Field(i).Set(reflect.ValueOf(b).Field(i))
		if diffEvents([]hansard.Event{a}, []hansard.Event{changed}) == "" {
			t.Errorf("Event.%s is not compared: add it to diffEvent in storetest/audit.go", name)
		}
	}
}
