package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/internal/wire"
	"hansard/memstore"
)

// small is a store with a little of everything.
func small(t testing.TB) *memstore.Store {
	t.Helper()
	ctx := context.Background()
	s := memstore.New()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []hansard.SessionID{"a", "b", "c", "gone"} {
		_, err := s.Create(ctx, id, hansard.Meta{Title: "title of " + string(id), Labels: map[string]string{"k": "v"}})
		must(err)
		a, err := s.Attach(ctx, id, strings.NewReader(strings.Repeat("attached to "+string(id), 20)))
		must(err)
		e := hansard.Message("user", "look")
		e.Attachments = []hansard.Attachment{a}
		e.ID = "first"
		_, err = s.Append(ctx, id, hansard.Batch{Events: []hansard.Event{e, hansard.Message("agent", "seen")}, Key: "k"})
		must(err)
	}
	must(s.Delete(ctx, "gone", ""))
	return s
}

func written(t testing.TB, s hansard.Exporter) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := Write(context.Background(), s, &out, WriteOptions{SpoolDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestSpoolsOfKilled: what a backup left that was killed before its spool lost its name is removed by
// the next one.
func TestSpoolsOfKilled(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, spoolPrefix+"1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(t.Context(), small(t), new(bytes.Buffer), WriteOptions{SpoolDir: dir}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("there is %v, %v", left, err)
	}
}

// checkBytes opens and checks a backup that is in memory.
func checkBytes(b []byte) error {
	f, err := newFile("x.hbk", bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	return f.Check(context.Background(), nil, nil)
}

// told reports whether an error is one that people can do something about.
func told(err error) bool {
	var damage *DamageError
	var cut *NotWholeError
	return errors.As(err, &damage) || errors.As(err, &cut) || errors.Is(err, hansard.ErrVersion)
}

// TestEveryBit: whatever byte is another one, check says so. Restoring either says so,
// or does not need that byte: a session never comes back other than it was.
func TestEveryBit(t *testing.T) {
	src := small(t)
	whole := written(t, src)
	if err := checkBytes(whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 1 << (i % 8)
		if err := checkBytes(flipped); !told(err) {
			t.Fatalf("byte %d of %d is another one, and check says: %v", i, len(whole), err)
		}
		f, err := newFile("x.hbk", bytes.NewReader(flipped), int64(len(flipped)))
		if err != nil {
			continue
		}
		dst := memstore.New()
		err = (&Chain{files: []*File{f}}).Restore(t.Context(), dst, RestoreOptions{})
		if err != nil && !told(err) {
			t.Fatalf("byte %d is another one: restore: %v", i, err)
		}
		compare(t, fmt.Sprintf("byte %d", i), src, dst)
	}
}

// compare checks that what is in the copy is a prefix of what is in the source.
func compare(t *testing.T, what string, src, dst *memstore.Store) {
	t.Helper()
	for info, err := range dst.List(t.Context(), hansard.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		var want []hansard.Event
		for e, err := range src.Read(t.Context(), info.ID, hansard.Range{}) {
			if err != nil {
				t.Fatalf("%s: session %s: %v", what, info.ID, err)
			}
			want = append(want, e)
		}
		for e, err := range dst.Read(t.Context(), info.ID, hansard.Range{}) {
			if err != nil || int(e.Seq) > len(want) || !hansard.SameEvent(&e, &want[e.Seq-1]) {
				t.Fatalf("%s: session %s has %+v, %v", what, info.ID, e, err)
			}
		}
	}
}

// TestEveryCut: a backup that was cut off anywhere is not whole.
func TestEveryCut(t *testing.T) {
	whole := written(t, small(t))
	for n := range whole {
		if err := checkBytes(whole[:n]); !told(err) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(whole), err)
		}
	}
	if err := checkBytes(append(bytes.Clone(whole), 0)); !told(err) {
		t.Errorf("with a byte behind its end: %v", err)
	}
	if err := checkBytes(append(bytes.Clone(whole), whole...)); !told(err) {
		t.Errorf("twice: %v", err)
	}
}

// TestSalvage: whatever byte is wrong and wherever it was cut, the sessions that this
// does not touch come back, and never others than they were.
func TestSalvage(t *testing.T) {
	src := memstore.New()
	big := strings.Repeat("x", lineBlock/2)
	const sessions = 6
	for i := range sessions {
		for n := range 3 {
			if _, err := src.Append(t.Context(), hansard.SessionID(fmt.Sprint("s", i)), hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", fmt.Sprint(n, big))}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	whole := written(t, src)
	path := filepath.Join(t.TempDir(), "x.hbk")
	tryOn := func(what string, b []byte, least int) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := OpenSalvage(path)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer c.Close()
		dst := memstore.New()
		whole := 0
		err = c.Restore(t.Context(), dst, RestoreOptions{Report: func(r Restored) {
			if r.Err == nil && r.Events == 3 {
				whole++
			} else if !told(r.Err) {
				t.Errorf("%s: %+v", what, r)
			}
		}})
		if !told(err) || whole < least {
			t.Errorf("%s: %d sessions are whole, want %d at least; %v", what, whole, least, err)
		}
		compare(t, what, src, dst)
	}
	for i := 0; i < len(whole)-trailerBytes; i += len(whole)/12 + 1 {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 0x10
		// A block has parts of two sessions, or three.
		tryOn(fmt.Sprintf("byte %d of %d", i, len(whole)), flipped, sessions-3)
	}
	for n := headerBytes; n < len(whole); n += len(whole)/12 + 1 {
		tryOn(fmt.Sprintf("cut to %d of %d", n, len(whole)), whole[:n], 0)
	}
	tryOn("without its end", whole[:len(whole)-1], sessions)
}

// forge writes an archive of these lines, with checksums that are right.
func forge(t testing.TB, lines []string, manifest []string, totals Totals, pieces ...[]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := newArchive(&out, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	tail := ""
	for _, l := range lines {
		if e, err := wire.ParseEvent([]byte(l)); err == nil && e.Seq > 0 {
			tail = tailOf(&e)
		}
	}
	at := strings.NewReplacer()
	for i, l := range lines {
		if w.putLine([]byte(at.Replace(l))); i == 0 {
			w.flush()
			at = strings.NewReplacer("TAIL", tail, "OFFSET", fmt.Sprint(w.at))
		}
	}
	w.flush()
	for _, p := range pieces {
		w.block(kindAttachment, p)
	}
	for _, m := range manifest {
		if _, err := w.entries.WriteString(at.Replace(m) + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.finish(&totals); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const (
	aHead    = `{"backup":{"format":1,"number":0,"started":"2026-01-01T00:00:00Z"}}`
	aSession = `{"session":{"id":"s","created":"2026-01-01T00:00:00Z","meta":{},"deleted":false,"after":0}}`
	anEvent  = `{"seq":1,"time":"2026-01-01T00:00:00Z","kind":"message","role":"","author":"","turn":"","data":1}`
	aDone    = `{"done":{"id":"s","created":"2026-01-01T00:00:00Z","last":1,"from":0,"tail":"TAIL","events":1,"offset":OFFSET}}`
	anEntry  = `{"id":"s","created":"2026-01-01T00:00:00Z","last":1,"from":0,"tail":"TAIL","events":1,"offset":OFFSET}`
)

// TestForged: archives whose checksums are right and whose content is not.
func TestForged(t *testing.T) {
	sound := forge(t, []string{aHead, aSession, `{"part":{"events":1}}`, anEvent, aDone}, []string{anEntry}, Totals{Sessions: 1, Changed: 1, Events: 1})
	if err := checkBytes(sound); err != nil {
		t.Fatalf("nothing is wrong with it: %v", err)
	}
	digest := "sha256:" + strings.Repeat("0", 64)
	session := func(id string) string { return strings.Replace(aSession, `"s"`, fmt.Sprintf("%q", id), 1) }
	event := func(old, new string) string { return strings.Replace(anEvent, old, new, 1) }
	part := `{"part":{"events":1}}`
	for _, c := range []struct {
		what, want string
		lines      []string
	}{
		{"no head", "does not say which backup", []string{aSession}},
		{"not JSON", "can't be read", []string{aHead, "{"}},
		{"a line of nothing", "says nothing", []string{aHead, "{}"}},
		{"a path for an id", "must begin with a letter", []string{aHead, session("../../etc/passwd"), aDone}},
		{"an empty id", "is empty", []string{aHead, session(""), aDone}},
		{"a session without an end", "has no end", []string{aHead, aSession}},
		{"an end without a session", "of no session", []string{aHead, aDone}},
		{"a session twice", "begins at the wrong place", []string{aHead, aSession, part, anEvent, aDone, aSession, aDone}},
		{"a session in another", "begins at the wrong place", []string{aHead, aSession, session("t"), aDone}},
		{"a session from the middle on", "does not begin at its beginning", []string{aHead, strings.Replace(aSession, `"after":0`, `"after":3`, 1), aDone}},
		{"a part of more than there is", "ends too soon", []string{aHead, aSession, `{"part":{"events":3}}`, anEvent}},
		{"a part of far too many", "a part of 2000000000 events", []string{aHead, aSession, `{"part":{"events":2000000000}}`, anEvent, aDone}},
		{"a part of less than none", "a part of -1 events", []string{aHead, aSession, `{"part":{"events":-1}}`, anEvent, aDone}},
		{"an event that is none", "an event can't be read", []string{aHead, aSession, part, `[]`, aDone}},
		{"a gap", "expected last seq 1", []string{aHead, aSession, part, event(`"seq":1`, `"seq":2`), aDone}},
		{"an end at another seq", "ends with seq 1, not 2", []string{aHead, aSession, part, anEvent, strings.Replace(aDone, `"last":1`, `"last":2`, 1)}},
		{"a key of other content", "the hash of key", []string{aHead, aSession, `{"part":{"events":1,"keys":[{"key":"k","hash":"h","first":1,"last":1}]}}`, anEvent, aDone}},
		{"a key far away", "is not that of a batch", []string{aHead, aSession, `{"part":{"events":1,"keys":[{"key":"k","hash":"h","first":1,"last":18446744073709551615}]}}`, anEvent, aDone}},
		{"a grant that nobody has", "not the current one", []string{aHead, aSession, part, event(`"turn":""`, `"turn":"1-0123456789abcdef"`), aDone}},
		{"an attachment that is not there", "which is not there", []string{aHead, aSession, part, event(`"data"`, `"attachments":[{"digest":"`+digest+`","size":1}],"data"`), aDone}},
		{"an attachment of minus one", "can't be", []string{aHead, aSession, `{"attachment":{"digest":"` + digest + `","size":-1}}`, aDone}},
		{"an attachment of 2^62", "can't be", []string{aHead, aSession, `{"attachment":{"digest":"` + digest + `","size":4611686018427387904}}`, aDone}},
		{"an attachment that is a path", "can't be", []string{aHead, aSession, `{"attachment":{"digest":"sha256:../../../x","size":1}}`, aDone}},
		{"lines in place of an attachment", "lines stand where", []string{aHead, aSession, `{"attachment":{"digest":"` + digest + `","size":9}}`, aDone}},
	} {
		forged := forge(t, c.lines, []string{anEntry}, Totals{Sessions: 1, Changed: 1, Events: 1})
		if err := checkBytes(forged); !told(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: check: %v", c.what, err)
		}
		restoreForged(t, c.what, forged)
	}
	entry := func(old, new string) string { return strings.Replace(anEntry, old, new, 1) }
	for _, c := range []struct {
		what, want string
		manifest   []string
		totals     Totals
	}{
		{"no entry", "not as the manifest says", nil, Totals{}},
		{"an entry twice", "not in order", []string{anEntry, anEntry}, Totals{}},
		{"another order", "not as the manifest says", []string{entry(`"s"`, `"t"`), anEntry}, Totals{}},
		{"a path", "must begin with a letter", []string{entry(`"s"`, `"../s"`)}, Totals{}},
		{"one too many", "session t is missing", []string{anEntry, entry(`"s"`, `"t"`)}, Totals{Sessions: 2, Changed: 1, Events: 1}},
		{"one without content", "has no content anywhere", []string{anEntry, `{"id":"t","created":"2026-01-01T00:00:00Z","last":7}`}, Totals{Sessions: 2, Changed: 1, Events: 1}},
		{"not JSON", "can't be read", []string{"{"}, Totals{}},
		{"from a backup to come", "not as the manifest says", []string{entry(`"from":0`, `"from":7`)}, Totals{}},
		{"another last event", "not as the manifest says", []string{entry(`TAIL`, `0123`)}, Totals{}},
		{"totals that are wrong", "and says 9", []string{anEntry}, Totals{Sessions: 9, Changed: 1, Events: 1}},
	} {
		forged := forge(t, []string{aHead, aSession, part, anEvent, aDone}, c.manifest, c.totals)
		if err := checkBytes(forged); !told(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("manifest with %s: check: %v", c.what, err)
		}
		restoreForged(t, c.what, forged)
	}
	attach := []string{aHead, aSession, `{"attachment":{"digest":"` + digest + `","size":4}}`}
	for want, piece := range map[string]string{"longer than it says": "fives", "is sha256:": "four"} {
		forged := forge(t, attach, nil, Totals{}, []byte(piece))
		if err := checkBytes(forged); !told(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("a piece %q: %v", piece, err)
		}
		restoreForged(t, piece, forged)
	}
}

// TestOrder: blocks that are sound by themselves, in another order, twice or missing.
func TestOrder(t *testing.T) {
	src := memstore.New()
	for i := range 4 {
		e := hansard.Message("user", strings.Repeat(fmt.Sprint(i), lineBlock))
		if _, err := src.Append(t.Context(), hansard.SessionID(fmt.Sprint("s", i)), hansard.Batch{Create: true, Events: []hansard.Event{e}}); err != nil {
			t.Fatal(err)
		}
	}
	whole := written(t, src)
	var at []int
	for pos := 0; pos < len(whole)-trailerBytes; {
		h, err := decodeHeader(whole[pos : pos+headerBytes])
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, pos)
		pos += headerBytes + int(h.stored)
	}
	block := func(i int) []byte { return whole[at[i]:at[i+1]] }
	for what, b := range map[string][]byte{
		"swapped": slices.Concat(whole[:at[1]], block(2), block(1), whole[at[3]:]),
		"twice":   slices.Concat(whole[:at[2]], block(1), whole[at[2]:]),
		"missing": slices.Concat(whole[:at[2]], whole[at[3]:]),
	} {
		b = slices.Concat(b[:len(b)-trailerBytes], encodeTrailer(int64(len(b)-trailerBytes-(len(whole)-trailerBytes-at[len(at)-1]))))
		if err := checkBytes(b); !told(err) || what != "missing" && !strings.Contains(err.Error(), "not the one that follows") {
			t.Errorf("a block that is %s: %v", what, err)
		}
	}
}

// TestOtherBase: an increment is checked against what its base has.
func TestOtherBase(t *testing.T) {
	src := small(t)
	file := func(b []byte) *File {
		f, err := newFile("x.hbk", bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	base := file(written(t, src))
	say := func(id hansard.SessionID) {
		if _, err := src.Append(t.Context(), id, hansard.Batch{Events: []hansard.Event{hansard.Message("user", "more")}}); err != nil {
			t.Fatal(err)
		}
	}
	say("b")
	var out bytes.Buffer
	if _, err := Write(t.Context(), src, &out, WriteOptions{Base: base}); err != nil {
		t.Fatal(err)
	}
	inc := file(out.Bytes())
	if err := inc.Check(t.Context(), base, nil); err != nil {
		t.Fatal(err)
	}
	if err := inc.Check(t.Context(), file(written(t, src)), nil); !told(err) || !strings.Contains(err.Error(), "where the base does not end") {
		t.Errorf("with a base that ends elsewhere: %v", err)
	}
	if err := inc.Check(t.Context(), file(written(t, memstore.New())), nil); !told(err) || !strings.Contains(err.Error(), "is not what the base has") {
		t.Errorf("with an empty base: %v", err)
	}
}

// restoreForged restores what may be anything: an error, or a session that the store
// takes.
func restoreForged(t *testing.T, what string, b []byte) {
	t.Helper()
	f, err := newFile("x.hbk", bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return
	}
	for _, salvage := range []bool{false, true} {
		err = (&Chain{files: []*File{f}, salvage: salvage}).Restore(t.Context(), memstore.New(), RestoreOptions{})
		if err != nil && !told(err) {
			t.Errorf("%s: restore: %v", what, err)
		}
	}
}

// TestBomb: a block that is small and says that it has much, or has much, costs a bounded
// amount of memory.
func TestBomb(t *testing.T) {
	var before, after runtime.MemStats
	for what, length := range map[string]int{"longer than any can be": maxLine + lineBlock, "longer than any of its kind": maxRecord + 1} {
		bomb := forge(t, []string{aHead, aSession, strings.Repeat(" ", length)}, nil, Totals{})
		if len(bomb) > 1<<20 {
			t.Fatalf("the bomb has %d bytes", len(bomb))
		}
		runtime.ReadMemStats(&before)
		err := checkBytes(bomb)
		runtime.ReadMemStats(&after)
		// A slice that grows by appending is allocated several times over.
		if allocated := after.TotalAlloc - before.TotalAlloc; !told(err) || !strings.Contains(err.Error(), what) || allocated > 8*maxLine {
			t.Errorf("%s: %v, after allocating %d MiB", what, err, allocated>>20)
		}
	}
	// Nor is what it says of its content.
	var out bytes.Buffer
	w, err := newArchive(&out, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	stored := w.enc.EncodeAll([]byte(strings.Repeat(" \n", 1<<20)), nil)
	lying := header{kind: kindLines, coding: codingFrame, stored: uint32(len(stored)), content: 9, sum: sha256.Sum256(stored)}
	if err := checkBytes(append(lying.encode(), stored...)); !told(err) || !strings.Contains(err.Error(), "more content than it says") {
		t.Errorf("a block with more content than it says: %v", err)
	}
	// The length of a block is not believed before the bytes are there.
	h := header{kind: kindLines, coding: codingFrame, stored: maxStored, content: maxContent}
	runtime.ReadMemStats(&before)
	err = checkBytes(append(h.encode(), "short"...))
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; !told(err) || allocated > 8<<20 {
		t.Errorf("a length of %d in a file of %d bytes: %v, after allocating %d MiB", maxStored, headerBytes+5, err, allocated>>20)
	}
}

// FuzzLines: lines with checksums that are right may say anything: no panic, and an
// error that tells what is wrong.
func FuzzLines(f *testing.F) {
	f.Add(strings.Join([]string{aSession, `{"part":{"events":1}}`, anEvent, aDone}, "\n"), anEntry, []byte("piece"))
	f.Add(aSession+"\n"+`{"attachment":{"digest":"sha256:`+strings.Repeat("0", 64)+`","size":5}}`, anEntry, []byte("piece"))
	f.Add(aDone, `{"id":"s","deleted":true,"created":"2026-01-01T00:00:00Z"}`, []byte{})
	f.Fuzz(func(t *testing.T, lines, entry string, piece []byte) {
		b := forge(t, append([]string{aHead}, strings.Split(lines, "\n")...), []string{entry}, Totals{Sessions: 1, Changed: 1, Events: 1}, piece)
		if err := checkBytes(b); err != nil && !told(err) {
			t.Errorf("check: %v", err)
		}
		restoreForged(t, "fuzzed", b)
	})
}

// FuzzBytes: a file may have any bytes.
func FuzzBytes(f *testing.F) {
	whole := written(f, small(f))
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(forge(f, []string{aHead, aSession, `{"part":{"events":1}}`, anEvent, aDone}, []string{anEntry}, Totals{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := checkBytes(b); err != nil && !told(err) {
			t.Errorf("check: %v", err)
		}
		restoreForged(t, "fuzzed", b)
	})
}
