package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing/iotest"

	"hansard"
	"hansard/engine"
)

var attachmentCases = []Case{
	{Name: "attachment/read back", run: attachmentReadBack,
		Defends: "what was attached is read back byte for byte, by every handle and after opening again, and its digest and size are right", Answers: "65"},
	{Name: "attachment/once", run: attachmentOnce,
		Defends: "the same bytes are one attachment, however often and by however many at once they are attached"},
	{Name: "attachment/named", run: attachmentNamed,
		Defends: "an event names attachments of its session, and an append that names what is not there stores nothing"},
	{Name: "attachment/refused", run: attachmentRefused,
		Defends: "nothing is attached to a session that is not there or was deleted, nor what its reader does not give whole"},
	{Name: "attachment/parts", run: attachmentParts,
		Defends: "any part of an attachment can be read"},
	{Name: "attachment/list", run: attachmentList,
		Defends: "all attachments of a session are listed, and none of another's"},
	{Name: "attachment/deleted", run: attachmentDeleted,
		Defends: "attachments go with their session"},
	{Name: "attachment/content", run: attachmentContents,
		Defends: "attachments are part of what an event says: the same id or key with others is something else"},
}

// attach attaches a text.
func (x *env) attach(id hansard.SessionID, content string) hansard.Attachment {
	x.Helper()
	a, err := x.store.Attach(x.ctx, id, strings.NewReader(content))
	if err != nil {
		x.Fatalf("Attach to %q: %v", id, err)
	}
	return a
}

// digested is the attachment that a text makes.
func digested(content []byte) hansard.Attachment {
	a, _ := engine.CopyAttachment(io.Discard, bytes.NewReader(content), hansard.MaxAttachmentBytes)
	return a
}

// with is an event that names attachments.
func with(content string, list ...hansard.Attachment) hansard.Event {
	e := text(content)
	e.Attachments = list
	return e
}

func (x *env) wantAttached(where string, s hansard.Store, id hansard.SessionID, content []byte) {
	x.Helper()
	r, err := s.OpenAttachment(x.ctx, id, digested(content).Digest)
	if err != nil {
		x.Errorf("%s: %v", where, err)
		return
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, content) || r.Size() != int64(len(content)) {
		x.Errorf("%s: %d bytes of %d, size %d, %v", where, len(got), len(content), r.Size(), err)
	}
}

func attachmentReadBack(x *env) {
	x.create("s")
	rng := rand.New(rand.NewPCG(x.rng.Uint64(), 0))
	contents := [][]byte{{}, {0}, []byte("text\r\n\x00\xff"), bytes.Repeat([]byte("0123456789abcdef"), 1<<16), make([]byte, 5<<20+3)}
	for i := range contents[4] {
		contents[4][i] = byte(rng.Uint32())
	}
	for i, content := range contents {
		a, err := x.store.Attach(x.ctx, "s", iotest.HalfReader(bytes.NewReader(content)))
		if err != nil || a != digested(content) {
			x.Errorf("attachment %d: %+v, %v; want %+v", i, a, err, digested(content))
		}
	}
	check := func(where string, s hansard.Store) {
		for i, content := range contents {
			x.wantAttached(fmt.Sprintf("%s, attachment %d", where, i), s, "s", content)
		}
	}
	for i, s := range x.handles(2) {
		check(fmt.Sprintf("through handle %d", i+1), s)
	}
	x.reopen()
	check("after opening again", x.store)
}

func attachmentOnce(x *env) {
	handles := x.handles(4)
	x.create("s")
	content := bytes.Repeat([]byte("the same "), 100_000)
	x.each(8, "attacher", func(i int) error {
		for range 3 {
			a, err := handles[i%len(handles)].Attach(x.ctx, "s", bytes.NewReader(content))
			if err != nil || a != digested(content) {
				return fmt.Errorf("%+v, %w", a, err)
			}
		}
		return nil
	})
	x.wantAttached("after all", x.store, "s", content)
	if list := x.attachments("s"); len(list) != 1 {
		x.Errorf("%d attachments, want 1", len(list))
	}
}

func (x *env) attachments(id hansard.SessionID) (list []hansard.Attachment) {
	x.Helper()
	for a, err := range x.store.Attachments(x.ctx, id) {
		if err != nil {
			x.Fatalf("Attachments of %q: %v", id, err)
		}
		list = append(list, a)
	}
	return list
}

func attachmentNamed(x *env) {
	x.create("s")
	x.create("t")
	a, b := x.attach("s", "one"), x.attach("s", "two")
	a.MediaType, a.Name = "image/png", "a picture \u2028.png"
	others := x.attach("t", "another session's")
	batch := hansard.Batch{Events: []hansard.Event{with("first", a, b), text("plain"), with("second", b, b)}, Key: "k"}
	x.append("s", batch)
	if r := x.append("s", batch); !r.Replayed {
		x.Errorf("again: %+v", r)
	}
	check := func(when string) {
		x.Helper()
		events := x.all("s")
		if len(events) != 3 || !slices.Equal(events[0].Attachments, []hansard.Attachment{a, b}) || events[1].Attachments != nil || !slices.Equal(events[2].Attachments, []hansard.Attachment{b, b}) {
			x.Errorf("%s: %+v", when, events)
		}
	}
	check("when it was appended")
	x.reopen()
	check("after opening again")
	x.refused(hansard.ErrNoAttachment, "s", hansard.Batch{Events: []hansard.Event{text("x"), with("y", a, others)}})
	x.refused(hansard.ErrNoAttachment, "s", hansard.Batch{Events: []hansard.Event{with("x", digested([]byte("never")))}})
	x.refused(hansard.ErrNoAttachment, "new", hansard.Batch{Events: []hansard.Event{with("x", a)}, Create: true})
	x.wantErr("a session of a refused append", second(x.store.Stat(x.ctx, "new")), hansard.ErrNotFound)
	// The order of the checks: expectation, attachments, patch.
	x.refused(hansard.ErrConflict, "s", hansard.Batch{Events: []hansard.Event{with("x", others)}, Expect: hansard.At(1)})
	labels := map[string]*string{}
	for i := range hansard.MaxLabels {
		labels[fmt.Sprint("label ", i)] = ptr("")
	}
	x.append("labelled", hansard.Batch{Create: true, Patch: &hansard.Patch{Labels: map[string]*string{"one more": ptr("")}}})
	x.refused(hansard.ErrNoAttachment, "labelled", hansard.Batch{Events: []hansard.Event{with("x", others)}, Patch: &hansard.Patch{Labels: labels}})
	wrong := b
	wrong.Size++
	x.refused(hansard.ErrInvalid, "s", hansard.Batch{Events: []hansard.Event{with("x", wrong)}})
	x.refused(hansard.ErrInvalid, "s", hansard.Batch{Events: []hansard.Event{with("x", b, wrong)}})
	for _, digest := range []string{"", "sha256:", "sha512:" + b.Digest[7:], b.Digest[7:], strings.ToUpper(b.Digest), b.Digest + "0", "sha256:" + strings.Repeat("g", 64), "sha256:../../" + strings.Repeat("a", 58)} {
		bad := b
		bad.Digest = digest
		x.refused(hansard.ErrInvalid, "s", hansard.Batch{Events: []hansard.Event{with("x", bad)}})
		_, err := x.store.OpenAttachment(x.ctx, "s", digest)
		x.wantErr(fmt.Sprintf("opening %q", digest), err, hansard.ErrInvalid)
	}
	x.refused(hansard.ErrTooLarge, "s", hansard.Batch{Events: []hansard.Event{with("x", slices.Repeat([]hansard.Attachment{b}, hansard.MaxAttachments+1)...)}})
	check("after refusals")
}

func attachmentRefused(x *env) {
	x.create("s")
	x.create("gone")
	x.delete("gone")
	attach := func(id hansard.SessionID, r io.Reader) error { return second(x.store.Attach(x.ctx, id, r)) }
	x.wantErr("to no session", attach("none", strings.NewReader("x")), hansard.ErrNotFound)
	x.wantErr("to a deleted session", attach("gone", strings.NewReader("x")), hansard.ErrDeleted)
	x.wantErr("to no id", attach("../s", strings.NewReader("x")), hansard.ErrInvalid)
	broken := errors.New("the reader is broken")
	if err := attach("s", io.MultiReader(strings.NewReader("the beginning"), iotest.ErrReader(broken))); err == nil {
		x.Error("half of a reader was attached")
	}
	_, err := x.store.OpenAttachment(x.ctx, "s", digested([]byte("the beginning")).Digest)
	x.wantErr("opening what broke off", err, hansard.ErrNoAttachment)
	_, err = x.store.OpenAttachment(x.ctx, "none", digested(nil).Digest)
	x.wantErr("opening in no session", err, hansard.ErrNotFound)
	if list := x.attachments("s"); len(list) != 0 {
		x.Errorf("attachments %v, want none", list)
	}
}

func attachmentParts(x *env) {
	x.create("s")
	content := make([]byte, 3<<20)
	for i := range content {
		content[i] = byte(i / 7)
	}
	if _, err := x.store.Attach(x.ctx, "s", bytes.NewReader(content)); err != nil {
		x.Fatal(err)
	}
	r, err := x.store.OpenAttachment(x.ctx, "s", digested(content).Digest)
	if err != nil {
		x.Fatal(err)
	}
	defer r.Close()
	for range 30 {
		from := x.rng.IntN(len(content) + 1)
		n := min(x.rng.IntN(200_000), len(content)-from)
		if at, err := r.Seek(int64(from), io.SeekStart); err != nil || at != int64(from) {
			x.Fatalf("seeking to %d: %d, %v", from, at, err)
		}
		got := make([]byte, n)
		if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, content[from:from+n]) {
			x.Fatalf("%d bytes at %d: %v", n, from, err)
		}
	}
	if end, err := r.Seek(0, io.SeekEnd); err != nil || end != int64(len(content)) {
		x.Errorf("the end is at %d, %v", end, err)
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		x.Errorf("at the end: %v", err)
	}
}

func attachmentList(x *env) {
	x.create("s")
	x.create("t")
	var want []hansard.Attachment
	for i := range 20 {
		want = append(want, x.attach("s", fmt.Sprint("content ", i)))
	}
	x.attach("t", "another session's")
	slices.SortFunc(want, func(a, b hansard.Attachment) int { return strings.Compare(a.Digest, b.Digest) })
	for range 2 {
		if got := x.attachments("s"); !slices.Equal(got, want) {
			x.Errorf("attachments %v, want %v", got, want)
		}
		x.reopen()
	}
}

func attachmentDeleted(x *env) {
	x.create("s")
	a := x.attach("s", "content")
	x.append("s", hansard.Batch{Events: []hansard.Event{with("x", a)}})
	x.delete("s")
	_, err := x.store.OpenAttachment(x.ctx, "s", a.Digest)
	x.wantErr("opening", err, hansard.ErrDeleted)
	for _, err := range x.store.Attachments(x.ctx, "s") {
		x.wantErr("listing", err, hansard.ErrDeleted)
	}
}

func attachmentContents(x *env) {
	x.create("s")
	a, b := x.attach("s", "one"), x.attach("s", "two")
	e := with("x", a)
	e.ID = "i"
	x.append("s", hansard.Batch{Events: []hansard.Event{e}, Key: "k"})
	other := e
	other.Attachments = []hansard.Attachment{b}
	x.refused(hansard.ErrKeyReused, "s", hansard.Batch{Events: []hansard.Event{other}, Key: "k"})
	x.refused(hansard.ErrIDReused, "s", hansard.Batch{Events: []hansard.Event{other}})
	renamed := a
	renamed.Name = "name"
	other.Attachments = []hansard.Attachment{renamed}
	x.refused(hansard.ErrIDReused, "s", hansard.Batch{Events: []hansard.Event{other}})
	if r := x.append("s", hansard.Batch{Events: []hansard.Event{e}}); !r.Replayed {
		x.Errorf("the same again: %+v", r)
	}
}
