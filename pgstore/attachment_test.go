package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"hansard"
	"hansard/internal/pgtest"
)

// SweepUploads does what a store does from time to time.
func SweepUploads(ctx context.Context, s *Store) { s.sweepUploads(ctx) }

// threeParts is the content attached here: two full parts and a bit.
func threeParts() []byte {
	content := make([]byte, 2*partBytes+5)
	r := rand.NewChaCha8([32]byte{})
	r.Read(content)
	return content
}

// rowsLeft counts the rows of session "s" that belong to attachments.
func (b *blocking) rowsLeft() (n int) {
	b.t.Helper()
	err := b.conn.QueryRow(b.t.Context(), "SELECT (SELECT count(*) FROM hansard_attachments WHERE id = 's') + (SELECT count(*) FROM hansard_attachment_parts WHERE id = 's')").Scan(&n)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// has checks that session "s" has this attachment and no other, and that all is sound.
func (b *blocking) has(want []byte) {
	b.t.Helper()
	n := 0
	for a, err := range b.Attachments(b.t.Context(), "s") {
		if err != nil {
			b.t.Fatal(err)
		}
		n++
		r, err := b.OpenAttachment(b.t.Context(), "s", a.Digest)
		if err != nil {
			b.t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
			b.t.Errorf("%d bytes, %v, and not what was attached", len(got), err)
		}
	}
	if n != 1 {
		b.t.Errorf("%d attachments, want 1", n)
	}
	for f, err := range b.Verify(b.t.Context(), "s") {
		if err != nil || f.Level != hansard.LevelOK {
			b.t.Errorf("%+v, %v", f, err)
		}
	}
	if left, rows := b.rowsLeft(), 1+(len(want)+partBytes-1)/partBytes; left != rows {
		b.t.Errorf("%d rows, want %d", left, rows)
	}
}

// gate is a reader that blocks until the test lets it go on.
type gate struct {
	io.Reader
	arrived chan struct{} // closed when it is read
	open    chan struct{}
	once    bool
}

func newGate() *gate { return &gate{arrived: make(chan struct{}), open: make(chan struct{})} }

func (g *gate) Read([]byte) (int, error) {
	if !g.once {
		g.once = true
		close(g.arrived)
	}
	<-g.open
	return 0, io.EOF
}

// TestAttachLostConnection: if connections are lost in the middle of an upload, at whatever
// statement, before or after the server has seen it, the caller does not see the error: the
// attachment is stored once, and whole.
func TestAttachLostConnection(t *testing.T) {
	for name, sql := range map[string]string{"start": startUpload, "part": addPart, "lock": findUpload, "finish": finishUpload, "commit": "COMMIT"} {
		for _, heard := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/heard %v", name, heard), func(t *testing.T) {
				tap, s := tapStore(t)
				tap.Lose(pgtest.Loss{SQL: sql, Heard: heard})
				content := threeParts()
				if _, err := s.Attach(t.Context(), "s", bytes.NewReader(content)); err != nil {
					t.Error(err)
				}
				if tap.Left() > 0 {
					t.Fatal("no connection was lost")
				}
				s.has(content)
				if _, err := s.Attach(t.Context(), "s", bytes.NewReader(content)); err != nil {
					t.Error(err)
				}
				s.has(content)
			})
		}
	}
}

// TestAttachLosesToDelete: an upload whose session is deleted meanwhile leaves nothing, at
// whatever point it was.
func TestAttachLosesToDelete(t *testing.T) {
	t.Run("at its start", func(t *testing.T) {
		s := newBlocking(t, "")
		s.lock()
		deleted := later(func() (struct{}, error) { return struct{}{}, s.Delete(t.Context(), "s", "") })
		s.waiting(1)
		g := newGate()
		attached := later(func() (hansard.Attachment, error) { return s.Attach(t.Context(), "s", g) })
		s.waiting(2)
		s.exec("COMMIT")
		if got := <-deleted; got.err != nil {
			t.Error(got.err)
		}
		if got := <-attached; !errors.Is(got.err, hansard.ErrDeleted) || g.once {
			t.Errorf("%+v, %v; it was read from: %v", got.value, got.err, g.once)
		}
		until(t, "nothing is left", func() bool { return s.rowsLeft() == 0 })
	})
	t.Run("at its end", func(t *testing.T) {
		s := newBlocking(t, "")
		g := newGate()
		attached := later(func() (hansard.Attachment, error) {
			return s.Attach(t.Context(), "s", io.MultiReader(bytes.NewReader(threeParts()), g))
		})
		<-g.arrived
		s.lock()
		deleted := later(func() (struct{}, error) { return struct{}{}, s.Delete(t.Context(), "s", "") })
		s.waiting(1)
		close(g.open)
		s.waiting(2)
		s.exec("COMMIT")
		if got := <-deleted; got.err != nil {
			t.Error(got.err)
		}
		if got := <-attached; !errors.Is(got.err, hansard.ErrDeleted) {
			t.Errorf("%+v, %v", got.value, got.err)
		}
		until(t, "nothing is left", func() bool { return s.rowsLeft() == 0 })
	})
	t.Run("between parts", func(t *testing.T) {
		s := newBlocking(t, "")
		g := newGate()
		attached := later(func() (hansard.Attachment, error) {
			return s.Attach(t.Context(), "s", io.MultiReader(bytes.NewReader(threeParts()), g, bytes.NewReader(threeParts())))
		})
		<-g.arrived
		if err := s.Delete(t.Context(), "s", ""); err != nil {
			t.Fatal(err)
		}
		if left := s.rowsLeft(); left != 0 {
			t.Errorf("%d rows are left when it is deleted", left)
		}
		close(g.open)
		if got := <-attached; !errors.Is(got.err, hansard.ErrDeleted) {
			t.Errorf("%+v, %v", got.value, got.err)
		}
		if left := s.rowsLeft(); left != 0 {
			t.Errorf("%d rows are left", left)
		}
	})
}

// TestAttachRacesWithDelete is the same in random order, with several stores. Nothing is left,
// and nothing that was deleted passes verification.
func TestAttachRacesWithDelete(t *testing.T) {
	s := newBlocking(t, "")
	other, err := Open(t.Context(), s.server.URL(schemaIn(t, s)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for round := range 30 {
		id := hansard.SessionID(fmt.Sprint("round", round))
		if _, err := s.Create(t.Context(), id, hansard.Meta{}); err != nil {
			t.Fatal(err)
		}
		var all []<-chan outcome[struct{}]
		for i := range 4 {
			all = append(all, later(func() (struct{}, error) {
				for n := 0; ; n++ {
					content := fmt.Appendf(nil, "%d of %d%s", n%2, i%2, bytes.Repeat([]byte("."), n%2*partBytes))
					a, err := []*Store{s.Store, other}[i%2].Attach(t.Context(), id, bytes.NewReader(content))
					if err == nil {
						_, err = s.Append(t.Context(), id, hansard.Batch{Events: []hansard.Event{{Data: []byte("1"), Attachments: []hansard.Attachment{a}}}})
					}
					if err != nil {
						return struct{}{}, err
					}
				}
			}))
		}
		until(t, "something is attached and named", func() bool {
			info, err := s.Stat(t.Context(), id)
			return err == nil && info.LastSeq >= hansard.Seq(round%4)
		})
		if err := other.Delete(t.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			if got := <-one; !errors.Is(got.err, hansard.ErrDeleted) {
				t.Errorf("%v", got.err)
			}
		}
	}
	until(t, "nothing is left", func() bool {
		var n int
		err := s.conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM hansard_attachments) + (SELECT count(*) FROM hansard_attachment_parts)").Scan(&n)
		return err == nil && n == 0
	})
	for f, err := range s.Verify(t.Context(), "") {
		if err != nil || f.Level != hansard.LevelOK {
			t.Errorf("%+v, %v", f, err)
		}
	}
}

// takeAway removes an attachment that no event names.
const takeAway = "UPDATE hansard_attachments SET digest = NULL, dropping = true WHERE id = 's' AND digest IS NOT NULL AND NOT named"

// TestNamedOrRemoved: an attachment is either named by an event or removed, and the database
// decides which.
func TestNamedOrRemoved(t *testing.T) {
	naming := func(t *testing.T, s *blocking) (write func() <-chan outcome[hansard.Receipt]) {
		a, err := s.Attach(t.Context(), "s", strings.NewReader("attached"))
		if err != nil {
			t.Fatal(err)
		}
		b := hansard.Batch{Events: []hansard.Event{{Data: []byte("1"), Attachments: []hansard.Attachment{a}}}}
		return func() <-chan outcome[hansard.Receipt] {
			return later(func() (hansard.Receipt, error) { return s.Append(t.Context(), "s", b) })
		}
	}
	t.Run("removed first", func(t *testing.T) {
		s := newBlocking(t, "")
		write := naming(t, s)
		s.exec("BEGIN")
		s.exec(takeAway)
		waiting := write()
		s.waiting(1)
		s.exec("COMMIT")
		if got := <-waiting; !errors.Is(got.err, hansard.ErrNoAttachment) {
			t.Errorf("%+v, %v", got.value, got.err)
		}
		soundLog(t, s.Store, 0)
	})
	t.Run("named first", func(t *testing.T) {
		s := newBlocking(t, "")
		write := naming(t, s)
		s.exec("BEGIN")
		s.exec("LOCK TABLE hansard_events IN SHARE MODE")
		waiting := write()
		s.waiting(1) // it has looked, and waits to add its event
		name := schemaIn(t, s)
		removed := later(func() (struct{}, error) {
			s.server.Exec(t, "SET search_path = "+name+"; "+takeAway)
			return struct{}{}, nil
		})
		s.server.Until(t, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%dropping = true WHERE id = ''s''%' AND query LIKE '%"+name+"%' AND wait_event_type = 'Lock'")
		s.exec("COMMIT")
		if got := <-waiting; got.err != nil {
			t.Errorf("%+v, %v", got.value, got.err)
		}
		<-removed
		s.has([]byte("attached"))
		soundLog(t, s.Store, 1)
		_, err := s.conn.Exec(t.Context(), "UPDATE hansard_attachments SET digest = NULL WHERE id = 's'")
		if code(err) != "23514" {
			t.Errorf("one that an event names loses its digest: %v", err)
		}
	})
	t.Run("deleted first", func(t *testing.T) {
		s := newBlocking(t, "")
		write := naming(t, s)
		s.lock()
		deleted := later(func() (struct{}, error) { return struct{}{}, s.Delete(t.Context(), "s", "") })
		s.waiting(1)
		waiting := write()
		s.waiting(2)
		s.exec("COMMIT")
		if got := <-deleted; got.err != nil {
			t.Error(got.err)
		}
		if got := <-waiting; !errors.Is(got.err, hansard.ErrDeleted) {
			t.Errorf("%+v, %v", got.value, got.err)
		}
		until(t, "nothing is left", func() bool { return s.rowsLeft() == 0 })
	})
}

// TestReadWhatGoes: a reader of an attachment that is being removed gets an error, and never
// bytes of something else.
func TestReadWhatGoes(t *testing.T) {
	for name, c := range map[string]struct {
		remove func(t *testing.T, s *blocking)
		want   error
	}{
		"the session": {func(t *testing.T, s *blocking) {
			if err := s.Delete(t.Context(), "s", ""); err != nil {
				t.Fatal(err)
			}
		}, hansard.ErrDeleted},
		"the session, and not its rows": {func(_ *testing.T, s *blocking) { s.exec("UPDATE hansard_heads SET deleted = true WHERE id = 's'") }, hansard.ErrDeleted},
		"the attachment":                {func(_ *testing.T, s *blocking) { s.exec(takeAway) }, hansard.ErrNoAttachment},
		"a part":                        {func(_ *testing.T, s *blocking) { s.exec("DELETE FROM hansard_attachment_parts WHERE n > 0") }, hansard.ErrDamaged},
		"and the store is closed":       {func(_ *testing.T, s *blocking) { s.Store.Close() }, hansard.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			s := newBlocking(t, "")
			content := threeParts()
			a, err := s.Attach(t.Context(), "s", bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.OpenAttachment(t.Context(), "s", a.Digest)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			first := make([]byte, 100)
			if _, err := io.ReadFull(r, first); err != nil {
				t.Fatal(err)
			}
			c.remove(t, s)
			rest, err := io.ReadAll(r)
			if !errors.Is(err, c.want) || !bytes.HasPrefix(content, append(first, rest...)) {
				t.Errorf("%d bytes more, and %v; want %v", len(rest), err, c.want)
			}
			if _, err := r.Seek(10, io.SeekStart); err != nil {
				t.Error(err)
			}
			if _, err := r.Read(first); name != "a part" && !errors.Is(err, c.want) {
				t.Errorf("from the start: %v, want %v", err, c.want)
			}
		})
	}
}

// TestAttachLost: an upload whose parts the database has lost does not become an attachment.
func TestAttachLost(t *testing.T) {
	for name, sql := range map[string]string{
		"all":      "DELETE FROM hansard_attachments; DELETE FROM hansard_attachment_parts",
		"the last": "DELETE FROM hansard_attachment_parts WHERE n = 1; UPDATE hansard_attachments SET size = size - 1048576",
		"given up": "UPDATE hansard_attachments SET dropping = true",
	} {
		t.Run(name, func(t *testing.T) {
			s := newBlocking(t, "")
			g := newGate()
			attached := later(func() (hansard.Attachment, error) {
				return s.Attach(t.Context(), "s", io.MultiReader(bytes.NewReader(threeParts()[:2*partBytes]), g))
			})
			<-g.arrived
			if _, err := s.conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
			close(g.open)
			if got := <-attached; !errors.Is(got.err, hansard.ErrBusy) {
				t.Errorf("%+v, %v", got.value, got.err)
			}
			if left := s.rowsLeft(); left != 0 {
				t.Errorf("%d rows are left", left)
			}
		})
	}
}
