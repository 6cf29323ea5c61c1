package filestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"hansard"
	"hansard/internal/vfs"
)

// uploadBesideDelete has one process attach content to a session while another deletes it, and
// stops one of them at an operation until the other is done. The upload is either refused, or
// complete before the deletion, and in both cases nothing of it is left. refused: what happened.
func uploadBesideDelete(seed uint64) (refused bool, err error) {
	ctx := context.Background()
	d := vfs.NewDisk(seed)
	d.StopAt(vfs.Match{Proc: []string{"uploads", "deletes"}[seed%2], N: 1 + int(seed/2%150)})
	s, err := openOn(d.Process("setup"), 1, simRing)
	if err == nil {
		_, err = s.Create(ctx, "s", hansard.Meta{})
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		return false, err
	}
	const word = "pineapple"
	up, del := d.Process("uploads"), d.Process("deletes")
	play := func(p *vfs.Proc, seed uint64, do func(*Store) error) *error {
		result := new(error)
		d.Go(p, func() {
			s, err := openOn(p, seed, simRing)
			if err == nil {
				err = errors.Join(do(s), s.Close())
			}
			*result = err
		})
		return result
	}
	attached := play(up, 2, func(s *Store) error {
		_, err := s.Attach(ctx, "s", strings.NewReader(strings.Repeat(word+" ", 100)))
		return err
	})
	deleted := play(del, 3, func(s *Store) error {
		return errors.Join(s.Delete(ctx, "s", ""), s.checkpoints.checkpoint(true)) // which erases
	})
	d.OnIdle(func() bool {
		stopped := up.Stopped() || del.Stopped()
		up.Continue()
		del.Continue()
		return stopped
	})
	err = errors.Join(d.Run(), *deleted)
	if refused = errors.Is(*attached, hansard.ErrDeleted); !refused {
		err = errors.Join(err, *attached)
	}
	if err == nil { // both may have left the erasing to the next process
		if s, err = openOn(d.Process("later"), 4, simRing); err == nil {
			err = errors.Join(s.checkpoints.checkpoint(true), s.Close(), wantErased(d, word))
		}
	}
	if err != nil {
		err = fmt.Errorf("seed %d, the upload was refused: %v: %w\n%s", seed, refused, err, trace(d, 60))
	}
	return refused, err
}

// TestSimUploadBesideDelete defends: an upload does not outlive the deletion of its session.
func TestSimUploadBesideDelete(t *testing.T) {
	var refused atomic.Int64
	inWorlds(t, 300, 300, func(t *testing.T, seed uint64, states *atomic.Int64) {
		was, err := uploadBesideDelete(seed)
		if err != nil {
			t.Error(err)
		}
		if states.Add(1); was {
			refused.Add(1)
		}
	})
	if n := refused.Load(); n < 30 || n > 270 {
		t.Errorf("%d uploads of 300 were refused: the deletion is too early in nearly all, or too late", n)
	}
}
