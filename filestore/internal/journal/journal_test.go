package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

const testSize = 1 << 12

// chained places entries one after the other from the slot's start on, as the commit does,
// and encodes them.
func chained(sl *Slot, entries ...*Entry) []byte {
	var b []byte
	pos, chain := sl.Start, sl.StartChain
	for _, e := range entries {
		e.Pos, e.Prev = pos, chain
		b = e.AppendTo(b, sl.Salt)
		pos, chain = e.End(), e.Chain()
	}
	return b
}

func data(name, lines string) *Entry {
	return &Entry{Kind: KindData, Name: name, Lines: []byte(lines), Epoch: 3}
}

// ringOf is a ring on a simulated disk with these bytes from the slot's start on.
func ringOf(t *testing.T, sl *Slot, b []byte) *Ring {
	t.Helper()
	p := vfs.NewDisk(1).Process("p")
	if err := Make(p, Name, sl, b); err != nil {
		t.Fatal(err)
	}
	r, _, _, err := Open(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func namesOf(entries []*Entry) string {
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

// TestEntriesKeepEverything: every field of an entry is read back from the ring. Reflection
// finds a field that was added and not encoded.
func TestEntriesKeepEverything(t *testing.T) {
	sl := &Slot{Size: testSize, Salt: 7, Epoch: 1}
	e := &Entry{}
	v := reflect.ValueOf(e).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Uint64, reflect.Uint32:
			f.SetUint(uint64(100 + i))
		case reflect.Int64:
			f.SetInt(int64(100 + i))
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("name")
		case reflect.Slice:
			f.SetBytes([]byte("line\n"))
		case reflect.Uint8: // Kind, below
		default:
			t.Fatalf("Entry.%s is a %v: teach this test", v.Type().Field(i).Name, f.Kind())
		}
	}
	e.Kind, e.Padded = KindData, 0 // only a PAD has Padded
	b := chained(sl, e)
	r := ringOf(t, sl, b)
	found, end, chain, err := r.Scan(sl.Start, sl.StartChain, 0)
	if err != nil || len(found) != 1 || end != e.End() || chain != e.Chain() {
		t.Fatalf("%d entries, end %d, chain %x, %v; want 1, %d, %x", len(found), end, chain, err, e.End(), e.Chain())
	}
	if !reflect.DeepEqual(found[0], e) {
		t.Errorf("read back: %+v\nwritten:   %+v", found[0], e)
	}
}

// TestEveryBitOfAnEntryCounts: whichever bit of an entry is flipped, the valid entries end
// before it.
func TestEveryBitOfAnEntryCounts(t *testing.T) {
	sl := &Slot{Size: testSize, Salt: 7, Epoch: 1, Start: 3 * testSize, StartChain: 99}
	first, second, third := data("a", "one line\n"), data("b", "another\n"), data("c", "last\n")
	whole := chained(sl, first, second, third)
	used := uint64(EntryHeader + len(second.Name) + len(second.Lines)) // then zeros, which are never read
	for bit := range 8 * used {
		b := append([]byte(nil), whole...)
		b[second.Pos-sl.Start+bit/8] ^= 1 << (bit % 8)
		found, end, _, err := ringOf(t, sl, b).Scan(sl.Start, sl.StartChain, 0)
		if got := namesOf(found); err != nil || got != "a" || end != first.End() {
			t.Fatalf("bit %d: %q up to %d, %v; want only the first entry, up to %d", bit, got, end, err, first.End())
		}
	}
}

// TestOthersEntriesEndTheRing: leftovers of an earlier lap, another journal or an older
// epoch do not pass for the next entry.
func TestOthersEntriesEndTheRing(t *testing.T) {
	for _, c := range []struct {
		what  string
		other func(second *Entry, sl *Slot)
	}{
		{"an earlier lap", func(e *Entry, sl *Slot) { e.Pos -= sl.Size }},
		{"another place", func(e *Entry, _ *Slot) { e.Pos += EntryAlign }},
		{"another journal", func(_ *Entry, sl *Slot) { sl.Salt++ }},
		{"an older epoch", func(e *Entry, _ *Slot) { e.Epoch-- }},
		{"behind another entry", func(e *Entry, _ *Slot) { e.Prev++ }},
		{"an unknown kind", func(e *Entry, _ *Slot) { e.Kind = 9 }},
	} {
		sl := &Slot{Size: testSize, Salt: 7, Epoch: 1, Start: 2 * testSize}
		first, second := data("a", "one\n"), data("b", "two\n")
		b := chained(sl, first, second)[:first.Length()]
		of := *sl
		c.other(second, &of)
		found, end, _, err := ringOf(t, sl, second.AppendTo(b, of.Salt)).Scan(sl.Start, 0, 0)
		if got := namesOf(found); err != nil || got != "a" || end != first.End() {
			t.Errorf("%s: %q up to %d, %v", c.what, got, end, err)
		}
	}
}

// TestAroundTheEnd: entries are found when a PAD fills the end of the ring, when too little
// is left for a header, and when an entry ends exactly at the end of the ring.
func TestAroundTheEnd(t *testing.T) {
	for _, left := range []uint64{0, 8, EntryHeader - 8, EntryHeader, EntryHeader + 64} {
		const before = 1 << 10
		sl := &Slot{Size: testSize, Salt: 7, Epoch: 1, Start: testSize - before}
		first := data("a", strings.Repeat("x", int(before-left-EntryHeader-1)))
		b := chained(sl, first)
		pos, chain := first.End(), first.Chain()
		if left >= EntryHeader {
			pad := &Entry{Kind: KindPad, Epoch: 3, Pos: pos, Prev: chain, Padded: left - EntryHeader}
			b = append(pad.AppendTo(b, sl.Salt), make([]byte, pad.Padded)...)
			pos, chain = pad.End(), pad.Chain()
		} else {
			b, pos = append(b, make([]byte, left)...), pos+left
		}
		if pos != testSize {
			t.Fatalf("%d left: the next entry would be at %d", left, pos)
		}
		second := &Entry{Kind: KindData, Name: "b", Lines: []byte("two\n"), Epoch: 3, Pos: pos, Prev: chain}
		b = second.AppendTo(b, sl.Salt)
		found, end, _, err := ringOf(t, sl, b).Scan(sl.Start, 0, 0)
		if got := namesOf(found); err != nil || got != "a b" || end != second.End() {
			t.Errorf("%d left: %q up to %d, %v; want both up to %d", left, got, end, err, second.End())
		}
	}
}

// TestLostBehind: the end of the valid entries is damage if something after it proves that
// there was more, and the real end otherwise.
func TestLostBehind(t *testing.T) {
	for _, durable := range []bool{false, true} {
		sl := &Slot{Size: testSize, Salt: 7, Epoch: 1, Start: testSize}
		first, second, third := data("a", "one\n"), data("b", "two\n"), data("c", "three\n")
		chained(sl, first, second, third)
		third.DurableHint = first.End()
		if durable {
			third.DurableHint = second.End()
		}
		b := chained(sl, first, second, third)
		b[second.Pos-sl.Start+EntryHeader] ^= 1
		r := ringOf(t, sl, b)
		_, end, _, err := r.Scan(sl.Start, 0, 0)
		if err != nil || end != first.End() {
			t.Fatalf("the entries end at %d, %v", end, err)
		}
		if err := r.LostBehind(end, sl.Start); errors.Is(err, hansard.ErrDamaged) != durable {
			t.Errorf("the lost entry was durable: %v; LostBehind says %v", durable, err)
		}
	}
}

// TestSlots: the newest intact slot counts, whichever bit of the other is wrong, and a slot
// of another format is not passed over for an older one.
func TestSlots(t *testing.T) {
	older := Slot{StoreID: 1, Salt: 2, Size: testSize, HSeq: 5, Epoch: 6, Start: 7, StartChain: 8}
	newer := Slot{StoreID: 1, Salt: 2, Size: testSize, HSeq: 6, Epoch: 6, Start: 16, StartChain: 9, Clean: true}
	p := vfs.NewDisk(1).Process("p")
	if err := Make(p, Name, &older, nil); err != nil {
		t.Fatal(err)
	}
	r, _, _, err := Open(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	counts := func(what string, want Slot) {
		t.Helper()
		slots, _, best, err := ReadSlots(r.File)
		if err != nil || best < 0 || slots[best] != want {
			t.Fatalf("%s: slot %d of %+v counts, %v", what, best, slots, err)
		}
	}
	counts("one slot", older)
	if err := r.WriteSlot(1, &newer); err != nil {
		t.Fatal(err)
	}
	counts("two slots", newer)
	whole := newer.Encode()
	for bit := range 8 * SlotUsed {
		b := append([]byte(nil), whole...)
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := r.File.WriteAt(b, SlotBytes); err != nil {
			t.Fatal(err)
		}
		counts(fmt.Sprintf("bit %d of the newer", bit), older)
	}
	newer.Incompat = 1
	if err := r.WriteSlot(1, &newer); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := Open(p, 0); !errors.Is(err, hansard.ErrVersion) {
		t.Errorf("a slot with a feature that is not known: %v", err)
	}
}

// TestNextSlot: a slot that is made from another one has all of it but what changes, also
// fields that were added later.
func TestNextSlot(t *testing.T) {
	sl := Slot{Incompat: 4}
	v := reflect.ValueOf(&sl).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		default:
			f.SetUint(uint64(4 + i))
		}
	}
	want := sl
	want.HSeq, want.Clean = sl.HSeq+1, false
	if got := sl.Next(); got != want {
		t.Errorf("after %+v comes %+v, want %+v", sl, got, want)
	}
}

// TestSalvagedSlot: a repaired journal needs the features that the damaged one needed: the
// entries are the same.
func TestSalvagedSlot(t *testing.T) {
	old := Slot{Incompat: 4, StoreID: 1, Salt: 2, Size: testSize, HSeq: 5, Epoch: 6, Start: 7, StartChain: 8, Clean: true}
	v := ReadSalvage(make([]byte, RingAt+testSize), [2]Slot{old}, [2]bool{true, false}, 0, testSize, func(string) bool { return true })
	want := Slot{Incompat: 4, StoreID: 1, Salt: 9, Size: testSize, HSeq: 6, Epoch: 7, Start: testSize}
	if got := *v.NewSlot(nil, 9); got != want {
		t.Errorf("the new slot is %+v, want %+v", got, want)
	}
	v = ReadSalvage(make([]byte, RingAt+testSize), [2]Slot{}, [2]bool{}, -1, testSize, func(string) bool { return true })
	if got, want := *v.NewSlot(nil, 9), (Slot{StoreID: 9, Salt: 9, Size: testSize, HSeq: 1, Epoch: 1}); got != want {
		t.Errorf("without an old slot it is %+v, want %+v", got, want)
	}
}

// TestOpenDamaged: a journal without a valid slot, or shorter than its slot says, is
// damaged; a missing one is not.
func TestOpenDamaged(t *testing.T) {
	p := vfs.NewDisk(1).Process("p")
	if _, _, _, err := Open(p, 0); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, hansard.ErrDamaged) {
		t.Errorf("no journal: %v", err)
	}
	if err := Make(p, Name, &Slot{Size: testSize, Salt: 7}, nil); err != nil {
		t.Fatal(err)
	}
	f, err := p.Open(Name, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(RingAt + testSize - 1); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := Open(p, 0); !errors.Is(err, hansard.ErrDamaged) {
		t.Errorf("a journal that is cut off: %v", err)
	}
	if _, err := f.WriteAt(make([]byte, SlotUsed), 0); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := Open(p, 0); !errors.Is(err, hansard.ErrDamaged) {
		t.Errorf("a journal without a slot: %v", err)
	}
}

// TestNextMagic: every aligned magic is found, and no other, wherever it is. Compared with
// a loop that looks at each multiple of 8.
func TestNextMagic(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		buf := make([]byte, random.IntN(20*EntryAlign))
		for range random.IntN(8) {
			if at := random.IntN(len(buf) + 1); random.IntN(2) == 0 {
				copy(buf[at:], EntryMagic[:])
			} else {
				copy(buf[at/EntryAlign*EntryAlign:], EntryMagic[:])
			}
		}
		var want, got []int
		for at := 0; at+len(EntryMagic) <= len(buf); at += EntryAlign {
			if [4]byte(buf[at:at+4]) == EntryMagic {
				want = append(want, at)
			}
		}
		for at := nextMagic(buf, 0); at >= 0; at = nextMagic(buf, at+EntryAlign) {
			got = append(got, at)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("found at %v, want %v, in %x", got, want, buf)
		}
	}
}
