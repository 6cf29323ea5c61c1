package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
	for i := 0; i < len(whole)-trailerBytes; i += 997 {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 0x10
		// A block has parts of two sessions, or three.
		tryOn(fmt.Sprintf("byte %d of %d", i, len(whole)), flipped, sessions-3)
	}
	for n := headerBytes; n < len(whole); n += 2003 {
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
	e, err := wire.ParseEvent([]byte(anEvent))
	if err != nil {
		t.Fatal(err)
	}
	at := strings.NewReplacer("TAIL", tailOf(&e))
	for i, l := range lines {
		if w.putLine([]byte(at.Replace(l))); i == 0 {
			w.flush()
			at = strings.NewReplacer("TAIL", tailOf(&e), "OFFSET", fmt.Sprint(w.at))
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
	for what, lines := range map[string][]string{
		"no head":                         {aSession},
		"not JSON":                        {aHead, "{"},
		"a line of nothing":               {aHead, "{}"},
		"a path for an id":                {aHead, session("../../etc/passwd"), aDone},
		"an empty id":                     {aHead, session(""), aDone},
		"a session without an end":        {aHead, aSession},
		"an end without a session":        {aHead, aDone},
		"a session twice":                 {aHead, aSession, `{"part":{"events":1}}`, anEvent, aDone, aSession, aDone},
		"a part of more than there is":    {aHead, aSession, `{"part":{"events":3}}`, anEvent},
		"a part of far too many":          {aHead, aSession, `{"part":{"events":2000000000}}`, anEvent, aDone},
		"a part of less than none":        {aHead, aSession, `{"part":{"events":-1}}`, anEvent, aDone},
		"an event that is none":           {aHead, aSession, `{"part":{"events":1}}`, `[]`, aDone},
		"a gap":                           {aHead, aSession, `{"part":{"events":1}}`, strings.Replace(anEvent, `"seq":1`, `"seq":2`, 1), aDone},
		"an end at another seq":           {aHead, aSession, `{"part":{"events":1}}`, anEvent, strings.Replace(aDone, `"last":1`, `"last":2`, 1)},
		"a key of other content":          {aHead, aSession, `{"part":{"events":1,"keys":[{"key":"k","hash":"h","first":1,"last":1}]}}`, anEvent, aDone},
		"a key far away":                  {aHead, aSession, `{"part":{"events":1,"keys":[{"key":"k","hash":"h","first":1,"last":18446744073709551615}]}}`, anEvent, aDone},
		"a grant that nobody has":         {aHead, aSession, `{"part":{"events":1}}`, strings.Replace(anEvent, `"turn":""`, `"turn":"1-0123456789abcdef"`, 1), aDone},
		"an attachment that is not there": {aHead, aSession, `{"part":{"events":1}}`, strings.Replace(anEvent, `"data"`, `"attachments":[{"digest":"`+digest+`","size":1}],"data"`, 1), aDone},
		"an attachment of minus one":      {aHead, aSession, `{"attachment":{"digest":"` + digest + `","size":-1}}`, aDone},
		"an attachment of 2^62":           {aHead, aSession, `{"attachment":{"digest":"` + digest + `","size":4611686018427387904}}`, aDone},
		"an attachment that is a path":    {aHead, aSession, `{"attachment":{"digest":"sha256:../../../x","size":1}}`, aDone},
		"an attachment without bytes":     {aHead, aSession, `{"attachment":{"digest":"` + digest + `","size":9}}`, aDone},
	} {
		forged := forge(t, lines, []string{anEntry}, Totals{Sessions: 1, Changed: 1, Events: 1})
		if err := checkBytes(forged); !told(err) {
			t.Errorf("%s: check: %v", what, err)
		}
		restoreForged(t, what, forged)
	}
	for what, manifest := range map[string][]string{
		"no entry": {}, "an entry twice": {anEntry, anEntry}, "another order": {strings.Replace(anEntry, `"s"`, `"t"`, 1), anEntry},
		"a path": {strings.Replace(anEntry, `"s"`, `"../s"`, 1)}, "one too many": {anEntry, strings.Replace(anEntry, `"s"`, `"t"`, 1)}, "not JSON": {"{"},
		"from a backup to come": {strings.Replace(anEntry, `"from":0`, `"from":7`, 1)},
	} {
		forged := forge(t, []string{aHead, aSession, `{"part":{"events":1}}`, anEvent, aDone}, manifest, Totals{Sessions: 1, Changed: 1, Events: 1})
		if err := checkBytes(forged); !told(err) {
			t.Errorf("manifest with %s: check: %v", what, err)
		}
		restoreForged(t, what, forged)
	}
	pieces := forge(t, []string{aHead, aSession, `{"attachment":{"digest":"` + digest + `","size":3}}`}, nil, Totals{}, []byte("four"))
	if err := checkBytes(pieces); !told(err) {
		t.Errorf("a piece that is too long: %v", err)
	}
	restoreForged(t, "a piece that is too long", pieces)
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
	for what, length := range map[string]int{"a long line": maxLine + lineBlock, "a line that is no event": maxRecord + 1} {
		bomb := forge(t, []string{aHead, aSession, strings.Repeat(" ", length)}, nil, Totals{})
		if len(bomb) > 1<<20 {
			t.Fatalf("the bomb has %d bytes", len(bomb))
		}
		runtime.ReadMemStats(&before)
		err := checkBytes(bomb)
		runtime.ReadMemStats(&after)
		// A slice that grows by appending is allocated several times over.
		if allocated := after.TotalAlloc - before.TotalAlloc; !told(err) || allocated > 8*maxLine {
			t.Errorf("%s: %v, after allocating %d MiB", what, err, allocated>>20)
		}
	}
	// The length of a block is not believed before the bytes are there.
	h := header{kind: kindLines, coding: codingFrame, stored: maxStored, content: maxContent}
	runtime.ReadMemStats(&before)
	err := checkBytes(append(h.encode(), "short"...))
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
