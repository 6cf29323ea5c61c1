package filestore

import (
	"context"
	"fmt"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Attachments in the simulation: processes attach content to one session, append events that
// name it, at once or later, and prune what no event names. The ledger shows that no event names
// a file that is missing, and wantOldPruned that no file is pruned before its time.

// attachStep attaches, appends an event that names what somebody attached, or prunes.
func (k *worker) attachStep(ctx context.Context, id hansard.SessionID) {
	w := k.w
	k.tag++
	switch r := k.rng.IntN(10); {
	case r < 3:
		removed, err := k.s.attachments.prune(ctx)
		w.pruned += len(removed)
		k.unless("prune", err)
	case r < 5:
		if a, ok := k.attachContent(ctx, id); ok {
			w.attached = append(w.attached, a)
		}
	case r < 7 && len(w.attached) > 0:
		k.name(ctx, id, w.attached[k.rng.IntN(len(w.attached))])
	default:
		k.attach(ctx, id)
	}
}

// wantOldPruned: whoever attached something has as long as pruneAge to append an event that names
// it. Nothing but prune removes attachments in this world.
func (w *world) wantOldPruned() {
	made := map[string]time.Time{}
	w.disk.OnOp(func(op vfs.Op) {
		file := op.Name
		if op.Kind == vfs.OpRename {
			file = op.To
		}
		if op.Err != nil || path.Dir(path.Dir(file)) != attachmentsDir || hansard.CheckDigest(hansard.DigestPrefix+path.Base(file)) != nil {
			return
		}
		switch op.Kind {
		case vfs.OpRename:
			if st, err := w.disk.Observer("times").Stat(file); err == nil {
				made[file] = st.ModTime
			}
		case vfs.OpRemove:
			// The removal itself has moved the clock on.
			if age := w.disk.Now().Add(-time.Millisecond).Sub(made[file]); age <= w.pruneAge && w.wrong == nil {
				w.wrong = fmt.Errorf("%s: %s was pruned at the age of %v", op.Proc, file, age)
			}
		}
	})
}

// TestPruneBesideABadLog: a log that can't be read keeps no other session's attachments from being
// pruned.
func TestPruneBesideABadLog(t *testing.T) {
	ctx := context.Background()
	for bad, other := range map[hansard.SessionID]string{"a": "b", "b": "a"} {
		d := vfs.NewDisk(1)
		cfg := simConfig(1, simRing)
		cfg.pruneAge = time.Nanosecond
		s, err := open(d.Process("a"), Options{}, cfg)
		want(t, "open", err, nil)
		for _, id := range []hansard.SessionID{"a", "b"} {
			say(t, s, id, nil, "one")
			_, err := s.Attach(ctx, id, strings.NewReader("nobody names it"))
			want(t, "attach", err, nil)
		}
		d.Inject(vfs.Match{Kind: vfs.OpRead, Name: sessionlog.Path(string(bad))}, vfs.Fault{Err: syscall.EIO, Always: true})
		removed, err := s.attachments.prune(ctx)
		want(t, "prune", err, syscall.EIO)
		if len(removed) != 1 || !strings.HasPrefix(removed[0], attachmentDir(other)) {
			t.Errorf("with %s unreadable: removed were %q", bad, removed)
		}
	}
}
