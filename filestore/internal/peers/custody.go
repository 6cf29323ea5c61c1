package peers

import (
	"encoding/binary"
	"fmt"

	"hansard/filestore/internal/crc32c"
	"hansard/internal/vfs"
)

// The fourth record of the control file, D @192, is about the directory of the logs: its
// stamp after the last process that changed its entries under write.lock, and a generation
// that stays the same as long as nothing else changed them. A list that knows all logs of a
// generation need not read the directory to know that none was copied in or removed by
// hand. Like the others it is a hint: the stamp is compared with the directory itself.
//
//	D   magic u32 | 4 zeros | generation | inode | mod | change | zeros | crc

const (
	dMagic    = 0x44534e48
	custodyAt = 3 * RecordBytes
)

// Custody is D.
type Custody struct {
	Generation uint64
	Dir        vfs.DirStamp
}

// ReadCustody reads D, without any lock. Not ok: it is missing, or just being written.
func ReadCustody(fsys vfs.FS) (c Custody, ok bool) {
	f, err := fsys.Open(ControlName, vfs.ReadOnly)
	if err != nil {
		return c, false
	}
	defer f.Close()
	b := make([]byte, RecordBytes)
	if _, err := f.ReadAt(b, custodyAt); err != nil {
		return c, false
	}
	le := binary.LittleEndian
	if le.Uint32(b) != dMagic || le.Uint32(b[60:]) != crc32c.Sum(b[:60]) {
		return c, false
	}
	c.Generation = le.Uint64(b[8:])
	c.Dir = vfs.DirStamp{Inode: le.Uint64(b[16:]), Mod: int64(le.Uint64(b[24:])), Change: int64(le.Uint64(b[32:]))}
	return c, true
}

// WriteCustody writes D, under write.lock.
func WriteCustody(fsys vfs.FS, c Custody) error {
	f, err := fsys.Open(ControlName, 0)
	if err != nil {
		return fmt.Errorf("open control: %w", err)
	}
	defer f.Close()
	b := make([]byte, RecordBytes)
	le := binary.LittleEndian
	le.PutUint32(b, dMagic)
	for i, v := range []uint64{c.Generation, c.Dir.Inode, uint64(c.Dir.Mod), uint64(c.Dir.Change)} {
		le.PutUint64(b[8+8*i:], v)
	}
	le.PutUint32(b[60:], crc32c.Sum(b[:60]))
	if _, err := f.WriteAt(b, custodyAt); err != nil {
		return fmt.Errorf("write control: %w", err)
	}
	return nil
}
