package filestore

import (
	"context"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// TestVerifyGrowing: a log that grows with every look at it is verified up to the length it had
// at the start, and then verify ends. So does the first read of such a log.
func TestVerifyGrowing(t *testing.T) {
	const enough = 1000
	for name, look := range map[string]func(*testing.T, *Store){
		"verify": func(t *testing.T, s *Store) {
			for f, err := range s.Verify(context.Background(), "s") {
				if err != nil || f.Level != hansard.LevelOK || f.Events < 3 || f.Events > enough/2 {
					t.Errorf("found %+v, %v", f, err)
				}
			}
		},
		"read": func(t *testing.T, s *Store) {
			n := 0
			for _, err := range s.Read(context.Background(), "s", hansard.Range{}) {
				if n++; err != nil {
					t.Fatal(err)
				}
			}
			if n < 3 || n > enough/2 {
				t.Errorf("read %d events", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := vfs.NewDisk(1)
			w := openSim(t, d.Process("writer"), 1)
			for range 3 {
				say(t, w, "s", nil, "before")
			}
			reader, err := open(d.Process("reader"), Options{ReadOnly: true}, simConfig(2, simRing))
			if err != nil {
				t.Fatal(err)
			}
			grown := 0
			d.OnOp(func(op vfs.Op) {
				if op.Proc == "reader" && op.Kind == vfs.OpRead && op.Name == sessionlog.Path("s") && grown < enough {
					grown++
					say(t, w, "s", nil, "meanwhile")
				}
			})
			look(t, reader)
			if grown == 0 || grown >= enough {
				t.Errorf("the log grew %d times meanwhile", grown)
			}
		})
	}
}

// TestVerifyUnreadJournal: a journal that can't be read is not said to be damaged, which would ask
// for a repair: it may be sound.
func TestVerifyUnreadJournal(t *testing.T) {
	d := vfs.NewDisk(1)
	s := openSim(t, d.Process("a"), 1)
	say(t, s, "s", nil, "one")
	d.Inject(vfs.Match{Kind: vfs.OpRead, Name: journal.Name}, vfs.Fault{Err: syscall.EIO, Always: true})
	all, err := findings(s, "")
	want(t, "verify", err, nil)
	for _, f := range all {
		if f.File == journal.Name && f.Level != hansard.LevelUnread || f.Level == hansard.LevelDamage {
			t.Errorf("found %+v", f)
		}
	}
}
