package cache

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"io"
	"slices"
	"sort"

	"hansard/filestore/internal/crc32c"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// The table of a log's keys, in cache/keys: a head, and (hash, offset) pairs of 16
// bytes, sorted, big-endian.
//
//	head  magic | uid u64 | upTo u64 | crc u32 of the line that ends there | 4 zeros | pairs u64 | crc u32 of the pairs | crc u32 of the head

const (
	// KeysHead is how long the head of a table is.
	KeysHead = 48
	// minKeyLine is shorter than any line that has a key.
	minKeyLine = sessionlog.SuffixWidth + 60
)

// KeyTableMagic begins every table. Another layout gets another last digit, and older
// programs ignore it: it is a cache.
var KeyTableMagic = [8]byte{'H', 'A', 'N', 'S', 'K', 'E', 'Y', '1'}

// KeyHash is what a key is sorted by. Collisions are expected: whoever finds an offset reads
// the line there and compares the key itself.
func KeyHash(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return h.Sum64()
}

// FindKey are the offsets that a table has for the hash of a key.
func FindKey(table []byte, key string) (ats []int64) {
	h, n := KeyHash(key), len(table)/16
	hashAt := func(i int) uint64 { return binary.BigEndian.Uint64(table[16*i:]) }
	for i := sort.Search(n, func(i int) bool { return hashAt(i) >= h }); i < n && hashAt(i) == h; i++ {
		ats = append(ats, int64(binary.BigEndian.Uint64(table[16*i+8:])))
	}
	return ats
}

// LoadKeys reads the table of a log's beginning, if there is one that fits: upTo
// is where it ends, and crc that of the line there. It is believed only whole: a key
// that it forgot would be stored twice.
func LoadKeys(fsys vfs.FS, name string, log vfs.File, uid uint64, size int64) (table []byte, upTo int64, crc uint32) {
	f, err := fsys.Open(KeysDir+"/"+name, vfs.ReadOnly)
	if err != nil {
		return nil, 0, 0
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil || n < KeysHead || (n-KeysHead)%16 != 0 {
		return nil, 0, 0
	}
	// Somebody else may have written it. Every key has a line in the log: a table with
	// more pairs is not ours, and its head is checked before room is made for them.
	be := binary.BigEndian
	head := make([]byte, KeysHead)
	if _, err := f.ReadAt(head, 0); (n-KeysHead)/16 > size/int64(minKeyLine) || err != nil ||
		[8]byte(head[:8]) != KeyTableMagic || be.Uint32(head[44:]) != crc32c.Sum(head[:44]) {
		return nil, 0, 0
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return nil, 0, 0
	}
	upTo, crc = int64(be.Uint64(b[16:])), be.Uint32(b[24:])
	if [8]byte(b[:8]) != KeyTableMagic || be.Uint64(b[8:]) != uid || be.Uint64(b[32:]) != uint64((n-KeysHead)/16) ||
		be.Uint32(b[40:]) != crc32c.Sum(b[KeysHead:]) || be.Uint32(b[44:]) != crc32c.Sum(b[:44]) || upTo > size {
		return nil, 0, 0
	}
	if got, err := sessionlog.CRCBefore(log, upTo); err != nil || got != crc {
		return nil, 0, 0
	}
	return b[KeysHead:], upTo, crc
}

// EncodeKeys is a table as it is written.
func EncodeKeys(uid uint64, upTo int64, crc uint32, pairs [][16]byte) []byte {
	slices.SortFunc(pairs, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	b := make([]byte, KeysHead, KeysHead+16*len(pairs))
	for i := range pairs {
		b = append(b, pairs[i][:]...)
	}
	be := binary.BigEndian
	copy(b, KeyTableMagic[:])
	be.PutUint64(b[8:], uid)
	be.PutUint64(b[16:], uint64(upTo))
	be.PutUint32(b[24:], crc)
	be.PutUint64(b[32:], uint64(len(pairs)))
	be.PutUint32(b[40:], crc32c.Sum(b[KeysHead:]))
	be.PutUint32(b[44:], crc32c.Sum(b[:44]))
	return b
}

// KeyPair is a key as it is in a table: its hash and the offset of the line that has it.
func KeyPair(key string, at int64) (p [16]byte) {
	binary.BigEndian.PutUint64(p[:], KeyHash(key))
	binary.BigEndian.PutUint64(p[8:], uint64(at))
	return p
}
