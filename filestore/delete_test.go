package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// wantDeleted: the id stays taken, there is nothing to read, and nothing is damaged.
func wantDeleted(s *Store) error {
	ctx := context.Background()
	_, created := s.Create(ctx, "s", hansard.Meta{})
	_, appended := s.Append(ctx, "s", hansard.Batch{Create: true, Events: []hansard.Event{text("x")}})
	_, stat := s.Stat(ctx, "s")
	var read error
	for _, err := range s.Read(ctx, "s", hansard.Range{}) {
		read = err
	}
	for what, err := range map[string]error{"create": created, "append": appended, "stat": stat, "read": read, "delete": s.Delete(ctx, "s", "")} {
		if !errors.Is(err, hansard.ErrDeleted) {
			return fmt.Errorf("%s: %w, want ErrDeleted", what, err)
		}
	}
	infos, err := listed(s, hansard.Query{})
	for _, i := range infos {
		if i.ID == "s" {
			err = fmt.Errorf("it is listed: %+v", i)
		}
	}
	for o, oerr := range s.Origins(ctx, "") {
		if err = errors.Join(err, oerr); oerr == nil && o.ID == "s" && !o.Deleted {
			err = errors.Join(err, fmt.Errorf("its origin: %+v", o))
		}
	}
	return errors.Join(err, wantSound(s, "s"), wantSound(s, ""))
}

// TestDeleteDamaged: a session can be deleted whatever damage it has. It stays deleted, and none
// of it is kept.
func TestDeleteDamaged(t *testing.T) {
	ctx := context.Background()
	put := func(t testing.TB, d *vfs.Disk, b []byte) { // another file, so that it is checked again
		putFile(t, d, sessionlog.Path("s"), nil)
		putFile(t, d, sessionlog.Path("s"), b)
	}
	foreign := buildLog("other", 3, 4, func(i int) (hansard.Event, string) { return text("%d", i), "" })
	for what, harm := range map[string]func(t testing.TB, d *vfs.Disk, log []byte){
		"a line":    func(t testing.TB, d *vfs.Disk, log []byte) { put(t, d, bytes.Join(broken(2)(linesOf(log)), nil)) },
		"its last":  func(t testing.TB, d *vfs.Disk, log []byte) { put(t, d, bytes.Join(broken(3)(linesOf(log)), nil)) },
		"a header":  func(t testing.TB, d *vfs.Disk, log []byte) { put(t, d, bytes.Join(broken(0)(linesOf(log)), nil)) },
		"garbage":   func(t testing.TB, d *vfs.Disk, log []byte) { put(t, d, []byte("garbage\n")) },
		"another's": func(t testing.TB, d *vfs.Disk, log []byte) { put(t, d, foreign) },
		"emptied":   func(t testing.TB, d *vfs.Disk, log []byte) { cutLog(t, d, 0) },
		"shortened": func(t testing.TB, d *vfs.Disk, log []byte) { cutLog(t, d, int64(len(log)-len(linesOf(log)[3]))) },
		"removed":   func(t testing.TB, d *vfs.Disk, log []byte) { putFile(t, d, sessionlog.Path("s"), nil) },
	} {
		t.Run(what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
			for i := range 3 {
				say(t, a, "s", nil, "secret %d", i)
				say(t, b, "other", nil, "%d", i)
			}
			log, _ := d.CacheBytes(sessionlog.Path("s"))
			harm(t, d, log)
			say(t, b, "s", hansard.ErrDamaged, "more")
			if err := a.Delete(ctx, "s", ""); err != nil {
				t.Fatalf("delete: %v", err)
			}
			for _, s := range []*Store{a, b} {
				if err := wantDeleted(s); err != nil {
					t.Error(err)
				}
			}
			if now, _ := d.CacheBytes(sessionlog.Path("s")); bytes.Contains(now, []byte("secret")) {
				t.Errorf("the log has %q", now)
			}
			want(t, "checkpoint", b.checkpoints.checkpoint(true), nil)
			if err := wantErased(d, "secret"); err != nil {
				t.Error(err)
			}
			d.PowerCut(vfs.Cut{})
			if err := wantErased(d, "secret"); err != nil {
				t.Errorf("after a power cut: %v", err)
			}
			c := openSim(t, d.Process("c"), 3)
			if err := wantDeleted(c); err != nil {
				t.Error(err)
			}
			if done, err := c.Repair(ctx, "s"); err != nil || done.Changed {
				t.Errorf("repair: %+v, %v", done, err)
			}
			hears(t, c, "other", "0", "1", "2")
		})
	}
}

// TestDeleteUnnoticed: a session deleted by a process that did not know of its damage is also
// deleted for processes that do, and a repair does not bring it back.
func TestDeleteUnnoticed(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	for range 3 {
		say(t, a, "s", nil, "one")
	}
	log, _ := d.CacheBytes(sessionlog.Path("s"))
	putFile(t, d, sessionlog.Path("s"), bytes.Join(broken(2)(linesOf(log)), nil))
	say(t, b, "s", hansard.ErrDamaged, "two")
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	for _, s := range []*Store{a, b, openSim(t, d.Process("c"), 3)} {
		say(t, s, "s", hansard.ErrDeleted, "two")
	}
	if _, err := b.Repair(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{a, b} {
		if err := wantDeleted(s); err != nil {
			t.Error(err)
		}
	}
}

// TestDeleteIll: a session whose log can't be written because of a disk error can be deleted once
// the disk works again.
func TestDeleteIll(t *testing.T) {
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	say(t, a, "s", nil, "one")
	d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: "sessions/*"}, vfs.Fault{Err: syscall.EIO, Always: true})
	say(t, a, "s", hansard.ErrUnknown, "two")
	for range 3 {
		say(t, a, "other", errAny, "one")
	}
	d.ClearRules()
	want(t, "delete", a.Delete(context.Background(), "s", ""), nil)
	if err := wantDeleted(a); err != nil {
		t.Error(err)
	}
}

// TestDeleteDamagedHeld: an exclusive turn keeps others from deleting a damaged session, as it
// does for a sound one, as far as the log still shows the turn.
func TestDeleteDamagedHeld(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	say(t, a, "s", nil, "one")
	turn := take(t, a, "s", hansard.Claim{Exclusive: true})
	sayUnder(t, a, "s", turn.Grant, nil, "two")
	sayUnder(t, a, "s", turn.Grant, nil, "three")
	log, _ := d.CacheBytes(sessionlog.Path("s"))
	putFile(t, d, sessionlog.Path("s"), nil)
	putFile(t, d, sessionlog.Path("s"), bytes.Join(broken(4)(linesOf(log)), nil))
	want(t, "delete by another", b.Delete(ctx, "s", ""), hansard.ErrHeld)
	want(t, "delete under a grant that is none", b.Delete(ctx, "s", "1-0000000000000001"), hansard.ErrFenced)
	if now, _ := d.CacheBytes(sessionlog.Path("s")); !bytes.Contains(now, []byte("three")) && !bytes.Contains(now, []byte("two")) {
		t.Error("the log is gone")
	}
	want(t, "delete by the holder", a.Delete(ctx, "s", turn.Grant), nil)
	if err := wantDeleted(b); err != nil {
		t.Error(err)
	}
}

// TestSimDeleteInterrupted: deleting a damaged session, interrupted by a kill or a power cut,
// leaves it either damaged with its old bytes or deleted; the next attempt completes it.
func TestSimDeleteInterrupted(t *testing.T) {
	ctx := context.Background()
	for what, lost := range map[string]bool{"damaged": false, "and with lines aside": true} {
		t.Run(what, func(t *testing.T) {
			var old []byte
			made := func(t testing.TB) (d *vfs.Disk) {
				if !lost {
					d, old = damagedSession(t, broken(2))
					return d
				}
				var a, b *Store
				d, a, b = harmed(t, logHarms["an older copy"])
				say(t, a, "s", hansard.ErrDamaged, "six")
				want(t, "close", errors.Join(a.Close(), b.Close()), nil)
				old, _ = d.CacheBytes(sessionlog.Path("s"))
				return d
			}
			interrupted(t, made, func(s *Store) error { return s.Delete(ctx, "s", "") }, func(d *vfs.Disk) error {
				s, err := openOn(d.Process("c"), 3, simRing)
				if err != nil {
					return err
				}
				_, err = s.Stat(ctx, "s")
				now, _ := d.CacheBytes(sessionlog.Path("s"))
				switch deleted := errors.Is(err, hansard.ErrDeleted); {
				case !deleted && !bytes.Equal(now, old):
					return errors.New("it is not deleted, and its log is another one")
				case !deleted && lost && !anywhere(d, "five"):
					return errors.New("it is not deleted, and what was set aside is gone")
				case err != nil && !deleted:
					return fmt.Errorf("stat: %w", err)
				case deleted:
					if err := wantDeleted(s); err != nil {
						return fmt.Errorf("after it was interrupted: %w", err)
					}
				default:
					if err := s.Delete(ctx, "s", ""); err != nil {
						return err
					}
				}
				if err := errors.Join(wantDeleted(s), s.Close()); err != nil {
					return err
				}
				if left := setAsideOf(s, "s"); len(left) > 0 {
					return fmt.Errorf("aside are still %q", left)
				}
				return wantErased(d, "given", "nine", "key1", "three", "five")
			})
		})
	}
}

// openLogs lists the log descriptors that a store keeps open.
func openLogs(s *Store) (open []string) {
	s.lock.mu.Lock()
	defer s.lock.mu.Unlock()
	for name, sess := range s.lock.state.logs.sessions {
		if sess.f != nil {
			open = append(open, name)
		}
	}
	return open
}

// TestDeletedIsClosed: no process keeps the log of a deleted session open: whatever takes its
// place, the old bytes are gone.
func TestDeletedIsClosed(t *testing.T) {
	ctx := context.Background()
	for what, do := range map[string]func(d *vfs.Disk, a, b *Store) error{
		"who deletes":          func(_ *vfs.Disk, a, _ *Store) error { return a.Delete(ctx, "s", "") },
		"who is refused after": func(_ *vfs.Disk, a, _ *Store) error { return errors.Join(a.Delete(ctx, "s", ""), refused(a)) },
		"a rotation": func(d *vfs.Disk, a, _ *Store) error {
			d.Inject(vfs.Match{Kind: vfs.OpSync, Name: journal.Name}, vfs.Fault{Err: syscall.EIO, Done: true})
			return a.Delete(ctx, "s", "")
		},
		"damaged": func(d *vfs.Disk, a, _ *Store) error {
			log, _ := d.CacheBytes(sessionlog.Path("s"))
			putFile(t, d, sessionlog.Path("s"), append(log, "x\n"...))
			return a.Delete(ctx, "s", "")
		},
		"a copy of the log": func(d *vfs.Disk, a, _ *Store) error {
			d.Inject(vfs.Match{Kind: vfs.OpSync, Name: sessionlog.Path("s")}, vfs.Fault{Err: syscall.EIO, Done: true})
			return errors.Join(a.Delete(ctx, "s", ""), a.checkpoints.checkpoint(true))
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
			for _, s := range []*Store{a, b, a} {
				say(t, s, "s", nil, "secret")
				say(t, s, "other", nil, "one")
			}
			if err := do(d, a, b); err != nil {
				t.Fatal(err)
			}
			say(t, b, "other", nil, "on") // and so learns of it
			for who, s := range map[string]*Store{"a": a, "b": b} {
				if open := strings.Join(openLogs(s), " "); strings.Contains(open, "s") {
					t.Errorf("%s has %q open", who, open)
				}
			}
			if err := refused(b); err != nil {
				t.Error(err)
			}
			if open := strings.Join(openLogs(b), " "); strings.Contains(open, "s") {
				t.Errorf("b has %q open again", open)
			}
		})
	}
	t.Run("who recovers it", func(t *testing.T) {
		d := vfs.NewDisk(1)
		a := openSim(t, d.Process("a"), 1)
		say(t, a, "s", nil, "secret")
		want(t, "delete", a.Delete(ctx, "s", ""), nil)
		d.PowerCut(vfs.Cut{})
		if open := openLogs(openSim(t, d.Process("b"), 2)); len(open) > 0 {
			t.Errorf("open are %q", open)
		}
	})
}

// refused is nil if a write to the deleted session is refused.
func refused(s *Store) error {
	if _, err := s.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{text("x")}}); !errors.Is(err, hansard.ErrDeleted) {
		return fmt.Errorf("append to the deleted: %w", err)
	}
	return nil
}
