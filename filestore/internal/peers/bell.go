package peers

import (
	"encoding/binary"
	"fmt"
	"io"

	"hansard/internal/vfs"
)

// A process that waits for turns has a file in bells/, by the name of its instance. Others
// write to it when it is next, and the kernel tells it of that. The file has a number for
// each of bellSlots; a session has the slot that its mark leads to. To ring is to write
// another number there, at random. So no order of several who ring at once loses one, and a
// process that waits for many turns learns which of them to look at. Others keep it open
// (roster.go).
//
// It is a hint, as control is: nothing is decided by it, it is never synced, and without
// it, or with any other content, a waiter finds out by looking now and then.

const (
	// BellsDir has the bells.
	BellsDir = "bells"
	// BellSlots is how many numbers there are: a page of them. Two sessions that share one
	// cost a claim that is refused.
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
	if err = l.fs.Mkdir(BellsDir); err != nil { // somebody may have removed it
		return nil, err
	}
	if b.f, err = l.fs.Open(b.Name, vfs.Create); err != nil {
		return nil, err
	}
	// Its full size from the start: a full disk keeps nobody from ringing.
	if b.inode, err = b.f.Inode(); err == nil {
		_, err = b.f.WriteAt(make([]byte, 8*BellSlots), 0)
	}
	if err != nil {
		b.Close(l.fs)
		return nil, err
	}
	return b, nil
}

// Found tells whether others can find the bell: somebody may have removed it.
func (b *Bell) Found(fsys vfs.FS) bool {
	inode, _, err := fsys.Inode(b.Name)
	return err == nil && inode == b.inode
}

// Heard are the slots that were rung since it was asked last.
func (b *Bell) Heard() (rung [BellSlots]bool, any bool) {
	var buf [8 * BellSlots]byte
	if _, err := b.f.ReadAt(buf[:], 0); err != nil && err != io.EOF { // somebody may have cut it
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
		_ = fsys.Remove(b.Name) // one that stays is removed with the instance's file
	}
	_ = b.f.Close()
}

// BellSlot is the slot of a session.
func BellSlot(name string) int { return int(MarkOf(name) >> 1 % BellSlots) }

// removeBells removes the bells of processes that have no file in instances/ any more. The
// caller holds write.lock, under which those files are made; a bell is made later.
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
