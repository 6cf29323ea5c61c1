package filestore

import (
	"encoding/binary"
	"fmt"
	"os"

	"hansard/internal/vfs"
)

// The control file has three records of 64 bytes, each with a checksum:
//
//	W @0    how far the ring is written and applied; written only under write.lock
//	Y @64   how far it is durable;                   written only under sync.lock
//	H @128  who holds write.lock, for people;        written only under write.lock
//
// It is a hint between processes that live at the same time: never synced, not
// trusted by the first to open the store, rebuilt from the journal when it is
// missing or wrong. Read and written with pread and pwrite: a store into a
// mapped page of a file on a full disk would be SIGBUS.

const (
	controlName  = "control"
	recordBytes  = 64
	wMagic       = 0x57534e48
	yMagic       = 0x59534e48
	wFlagFailed  = 1 // the ring could not be synced nor replaced: writes are refused
	wFlagNoSpace = 2 // a log could not be extended: durable entries wait in the ring
	wFlagAside   = 4 // something was set aside in this epoch: who waits for an entry looks whether it was his
)

// wRecord is the state that write.lock guards.
type wRecord struct {
	epoch     uint64
	written   uint64 // end of the last entry
	tailChain uint64 // its chain
	applied   uint64 // entries before this are in the logs
	start     uint64 // entries before this are durable in the logs; their space is free
	base      uint64 // durable when this epoch began
	flags     uint32
}

func (w *wRecord) encode() []byte {
	b := make([]byte, recordBytes)
	le := binary.LittleEndian
	le.PutUint32(b, wMagic)
	le.PutUint32(b[4:], w.flags)
	for i, v := range []uint64{w.epoch, w.written, w.tailChain, w.applied, w.start, w.base} {
		le.PutUint64(b[8+8*i:], v)
	}
	le.PutUint32(b[60:], checksum(b[:60]))
	return b
}

func (w *wRecord) decode(b []byte) bool {
	le := binary.LittleEndian
	if le.Uint32(b) != wMagic || le.Uint32(b[60:]) != checksum(b[:60]) {
		return false
	}
	w.flags = le.Uint32(b[4:])
	for i, p := range []*uint64{&w.epoch, &w.written, &w.tailChain, &w.applied, &w.start, &w.base} {
		*p = le.Uint64(b[8+8*i:])
	}
	return w.start <= w.applied && w.applied <= w.written
}

// control is the open control file.
type control struct {
	f     vfs.File
	inode uint64
}

// read reads W and the durable position of Y, which counts only in its epoch.
func (c *control) read() (w wRecord, durable uint64, ok bool) {
	var b [2 * recordBytes]byte
	if _, err := c.f.ReadAt(b[:], 0); err != nil {
		return w, 0, false
	}
	return decodeControl(b[:])
}

// readAll reads who held write.lock last as well.
func (c *control) readAll() (w wRecord, durable uint64, holder string, ok bool) {
	var b [3 * recordBytes]byte
	if _, err := c.f.ReadAt(b[:], 0); err != nil {
		return w, 0, "", false
	}
	w, durable, ok = decodeControl(b[:])
	return w, durable, string(b[2*recordBytes:]), ok
}

func decodeControl(b []byte) (w wRecord, durable uint64, ok bool) {
	if !w.decode(b[:recordBytes]) {
		return w, 0, false
	}
	le := binary.LittleEndian
	y := b[recordBytes:]
	if le.Uint32(y) == yMagic && le.Uint32(y[60:]) == checksum(y[:60]) && le.Uint64(y[8:]) == w.epoch {
		durable = le.Uint64(y[16:])
	}
	return w, min(max(durable, w.base, w.applied), w.written), true
}

func (c *control) writeW(w *wRecord) error {
	if _, err := c.f.WriteAt(w.encode(), 0); err != nil {
		return fmt.Errorf("write control: %w", err)
	}
	return nil
}

func (c *control) writeY(epoch, durable uint64) error {
	b := make([]byte, recordBytes)
	le := binary.LittleEndian
	le.PutUint32(b, yMagic)
	le.PutUint64(b[8:], epoch)
	le.PutUint64(b[16:], durable)
	le.PutUint32(b[60:], checksum(b[:60]))
	if _, err := c.f.WriteAt(b, recordBytes); err != nil {
		return fmt.Errorf("write control: %w", err)
	}
	return nil
}

// holderRecord describes this process to people who wait for its lock.
func holderRecord() []byte {
	b := make([]byte, recordBytes)
	binary.LittleEndian.PutUint32(b, uint32(os.Getpid()))
	host, _ := os.Hostname()
	copy(b[4:60], host)
	binary.LittleEndian.PutUint32(b[60:], checksum(b[:60]))
	return b
}

// holder is who took write.lock last, for people; nothing is decided by it.
func (c *control) holder() string {
	b := make([]byte, recordBytes)
	if _, err := c.f.ReadAt(b, 2*recordBytes); err != nil {
		return ""
	}
	pid := binary.LittleEndian.Uint32(b)
	if pid == 0 || binary.LittleEndian.Uint32(b[60:]) != checksum(b[:60]) {
		return ""
	}
	host := string(b[4:60])
	for i := range host {
		if host[i] == 0 {
			host = host[:i]
			break
		}
	}
	return fmt.Sprintf("process %d on %s", pid, host)
}
