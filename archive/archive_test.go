package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"hansard"
	"hansard/archive"
	"hansard/memstore"
)

// everything makes a session that has everything in it.
func everything(t *testing.T, id hansard.SessionID) hansard.Importer {
	t.Helper()
	ctx := context.Background()
	s := memstore.New()
	t.Cleanup(func() { _ = s.Close() })
	title := "A title — ü\u2028"
	if _, err := s.Create(ctx, id, hansard.Meta{Title: "first", Labels: map[string]string{"a": "b"}, State: []byte(`{"n":1}`)}); err != nil {
		t.Fatal(err)
	}
	big, err := s.Attach(ctx, id, strings.NewReader(strings.Repeat("0123456789", 100_000)))
	if err != nil {
		t.Fatal(err)
	}
	empty, err := s.Attach(ctx, id, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	turn, err := s.Acquire(ctx, id, hansard.Claim{Label: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	big.MediaType, big.Name = "text/plain", "n.txt"
	for i, b := range []hansard.Batch{
		{Key: "k1", Turn: turn.Grant, Events: []hansard.Event{{ID: "e1", Role: "user", Data: []byte(" {\n\"a\": 1.50,\t\"b\":\"<\\u2028>\"}\r\n")}, {Kind: "x", Author: "me", Data: []byte("null")}}},
		{Patch: &hansard.Patch{Title: &title, State: []byte(`{"m":[1]}`)}},
		{Key: "k2", Events: []hansard.Event{{ID: "e4", Inbox: true, Data: []byte(`"` + strings.Repeat("é", 8<<20-64) + `"`)}}},
		{Events: []hansard.Event{{Data: []byte(strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000))}}},
		{Events: []hansard.Event{{Kind: "message", Attachments: []hansard.Attachment{big, empty}, Data: []byte(`"see"`)}, {Attachments: []hansard.Attachment{big}, Data: []byte(`1`)}}},
	} {
		if _, err := s.Append(ctx, id, b); err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
	}
	if err := s.Release(ctx, id, turn.Grant); err != nil {
		t.Fatal(err)
	}
	return s
}

func export(t *testing.T, s hansard.Exporter, id hansard.SessionID) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := archive.Write(context.Background(), s, id, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestRoundTrip: an export that is taken in gives the same export again, byte for byte.
func TestRoundTrip(t *testing.T) {
	ctx := context.Background()
	src := everything(t, "demo")
	first := export(t, src, "demo")
	if !archive.Is(first[:200]) {
		t.Error("it is not known as an export")
	}
	file, err := archive.Open(ctx, bytes.NewReader(first), int64(len(first)))
	if err != nil {
		t.Fatal(err)
	}
	dst := memstore.New()
	defer dst.Close()
	for round := range 2 {
		for c, err := range hansard.Copy(ctx, file, dst) {
			if err != nil || c.Err != nil {
				t.Fatalf("round %d: %v, %v", round, err, c.Err)
			}
			if want := hansard.Seq(9 * (1 - round)); c.Added != want {
				t.Errorf("round %d: %d events were added, want %d", round, c.Added, want)
			}
		}
	}
	if second := export(t, dst, "demo"); !bytes.Equal(first, second) {
		t.Error("the export of what was taken in differs")
	}
	// A retry of what was stored is known there, too.
	r, err := dst.Append(ctx, "demo", hansard.Batch{Key: "k2", Events: []hansard.Event{{ID: "e4", Inbox: true, Data: []byte(`"` + strings.Repeat("é", 8<<20-64) + `"`)}}})
	if err != nil || !r.Replayed {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestSeveral: one file may have several sessions.
func TestSeveral(t *testing.T) {
	ctx := context.Background()
	both := append(export(t, everything(t, "b"), "b"), export(t, everything(t, "a"), "a")...)
	file, err := archive.Open(ctx, bytes.NewReader(both), int64(len(both)))
	if err != nil {
		t.Fatal(err)
	}
	dst := memstore.New()
	defer dst.Close()
	n := 0
	for c, err := range hansard.Copy(ctx, file, dst) {
		if n++; err != nil || c.Err != nil {
			t.Fatal(err, c.Err)
		}
	}
	if n != 2 || fmt.Sprint(file.Sessions()) != "[b a]" {
		t.Errorf("%d sessions, %v", n, file.Sessions())
	}
}

// TestBroken: a file that was changed anywhere, or cut, is refused.
func TestBroken(t *testing.T) {
	ctx := context.Background()
	s := memstore.New()
	defer s.Close()
	if _, err := s.Create(ctx, "demo", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	a, err := s.Attach(ctx, "demo", strings.NewReader("abc"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "demo", hansard.Batch{Key: "k", Events: []hansard.Event{{Data: []byte(`"hello"`), Attachments: []hansard.Attachment{a}}, {Data: []byte(`2`)}}}); err != nil {
		t.Fatal(err)
	}
	whole := export(t, s, "demo")
	end := bytes.LastIndex(whole[:len(whole)-1], []byte("\n")) + 1
	for i := range whole {
		broken := bytes.Clone(whole)
		broken[i] ^= 1
		if _, err := archive.Open(ctx, bytes.NewReader(broken), int64(len(broken))); i < end && !errors.Is(err, archive.ErrBroken) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := archive.Open(ctx, bytes.NewReader(whole[:i]), int64(i)); err == nil {
			t.Errorf("cut at %d: it was taken", i)
		}
	}
}

// FuzzOpen: no bytes make it panic.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"hansard":"session","version":1,"origin":{"id":"a"}}` + "\n" + `{"event":{"seq":1}}` + "\n" + `{"attachment":{"digest":"x"},"piece":"YQ=="}` + "\n" + `{"end":{}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := archive.Open(context.Background(), bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		dst := memstore.New()
		defer dst.Close()
		for range hansard.Copy(context.Background(), file, dst) { // whatever it says
		}
	})
}

// TestTwice: of two exports of one session in one file nothing is left out in silence.
func TestTwice(t *testing.T) {
	src := memstore.New()
	defer src.Close()
	var both bytes.Buffer
	for range 2 {
		if _, err := src.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", "hello")}}); err != nil {
			t.Fatal(err)
		}
		if err := archive.Write(t.Context(), src, "s", &both); err != nil {
			t.Fatal(err)
		}
	}
	f, err := archive.Open(t.Context(), bytes.NewReader(both.Bytes()), int64(both.Len()))
	if err == nil {
		t.Errorf("it has %v, and is fine", f.Sessions())
	}
}
