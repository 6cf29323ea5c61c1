package peers

import (
	"encoding/binary"
	"fmt"
	"io"

	"hansard/internal/vfs"
)

// A process that waits for turns has a file in bells/, named after its instance. Others
// write to it when it is next, and the kernel notifies it of the write. The file has
// BellSlots numbers; a session's mark determines its slot. To ring is to write another
// random number there. So no ring is lost when several processes ring at once, and a
// process that waits for many turns learns which of them to look at. Others keep the file
// open (roster.go).
//
// It is a hint, like control: nothing depends on it, it is never synced, and if it is
// missing or has any other content, a waiter finds out by looking now and then.

const (
	// BellsDir is the directory of the bells.
	BellsDir = "bells"
	// BellSlots is how many numbers there are: a page of them. Two sessions that share a
	// slot cost a refused claim.
	BellSlots = 512
)

// Bell is the bell of this process. It is used by one goroutine at a time.
type Bell struct {
	Name  string // relative to the store's directory
	f     vfs.File
	inode uint64
	heard [BellSlots]uint64
}

// NewBell makes the bell of this process, which must be registered.
func (l *Leases) NewBell() (*Bell, error) {
	inst := l.Instance()
	if inst == nil {
		return nil, fmt.Errorf("make a bell: this process is not registered in the store")
	}
	b := &Bell{Name: BellsDir + "/" + inst.Base()}
	var err error
	if err = l.fs.Mkdir(BellsDir); err != nil { // it may have been removed by hand
		return nil, err
	}
	if b.f, err = l.fs.Open(b.Name, vfs.Create); err != nil {
		return nil, err
	}
	// Full size from the start: a full disk must not prevent ringing.
	if b.inode, err = b.f.Inode(); err == nil {
		_, err = b.f.WriteAt(make([]byte, 8*BellSlots), 0)
	}
	if err != nil {
		b.Close(l.fs)
		return nil, err
	}
	return b, nil
}

// Found tells whether others can find the bell: it may have been removed by hand.
func (b *Bell) Found(fsys vfs.FS) bool {
	inode, _, err := fsys.Inode(b.Name)
	return err == nil && inode == b.inode
}

// Heard are the slots that were rung since the last call.
func (b *Bell) Heard() (rung [BellSlots]bool, any bool) {
	var buf [8 * BellSlots]byte
	if _, err := b.f.ReadAt(buf[:], 0); err != nil && err != io.EOF { // it may have been truncated from outside
		return rung, false
	}
	for i := range rung {
		now := binary.LittleEndian.Uint64(buf[8*i:])
		rung[i] = now != b.heard[i]
		any = any || rung[i]
		b.heard[i] = now
	}
	return rung, any
}

// Close closes the bell, and removes it if others can find it.
func (b *Bell) Close(fsys vfs.FS) {
	if b.Found(fsys) {
		_ = fsys.Remove(b.Name) // otherwise it is removed with the instance's file
	}
	_ = b.f.Close()
}

// BellSlot is the slot of a session.
func BellSlot(name string) int { return int(MarkOf(name) >> 1 % BellSlots) }

// removeBells removes the bells of processes that no longer have a file in instances/. The
// caller holds write.lock, under which those files are made; a bell is made after its
// instance's file.
func removeBells(fsys vfs.FS) {
	bells, err := fsys.ReadDir(BellsDir)
	if err != nil {
		return // most stores have none
	}
	for _, e := range bells {
		if _, _, err := fsys.Inode(InstancesDir + "/" + e.Name); err != nil && e.Regular {
			_ = fsys.Remove(BellsDir + "/" + e.Name)
		}
	}
}
