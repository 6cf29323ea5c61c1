package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"

	"hansard"
)

// A backup is a file of blocks. A block is a header of 128 bytes and the stored bytes.
//
//	0    u32  0x184d2a5e, u32 120: to zstd the header is a frame that it skips
//	8    8    magic
//	16   u32  version
//	20   u8   kind, u8 coding, 2 zeros
//	24   u64  number of the block, from 0
//	32   u32  bytes stored
//	36   u32  bytes of content
//	40   32   SHA-256 of the stored bytes
//	72   32   SHA-256 of the previous header, zeros for the first
//	104  20   zeros
//	124  u32  CRC-32C of the 124 bytes before it
//
// Each header covers its block and the previous header, so the digest of the last header
// is a digest of the whole backup.
const (
	headerBytes  = 128
	skippable    = 0x184d2a5e
	skippedBytes = 8 // the header of a frame that zstd skips
	magic        = "HANSBKP\n"
	magicAt      = 8
	version      = 1
)

type kind uint8

const (
	kindLines      kind = 1 // JSON lines: the sessions
	kindAttachment kind = 2 // a piece of an attachment
	kindManifest   kind = 3 // JSON lines: an entry per session
	kindEnd        kind = 4 // one JSON line: totals, and where the manifest is
)

type coding uint8

const (
	codingFrame   coding = 1 // a zstd frame
	codingSkipped coding = 2 // a frame that zstd skips, with the content as it is
	codingPacked  coding = 3 // the same, with the content as a zstd frame in it
)

// Limits that a reader enforces. It keeps one stored block and one line in memory.
const (
	lineBlock       = 4 << 20 // a block of lines is written when it is this large
	attachmentPiece = 4 << 20 // content of a block of an attachment
	maxStored       = 160 << 20
	maxContent      = 256 << 20
	// maxLine has room for an event of hansard.MaxBatchBytes twice, with every other byte
	// escaped, and for its patch.
	maxLine = 128 << 20
	// maxRecord is for lines that are not events, which are decoded as a whole.
	maxRecord = 32 << 20
)

// digest is a SHA-256.
type digest [sha256.Size]byte

func (d digest) String() string { return hex.EncodeToString(d[:]) }

type header struct {
	kind    kind
	coding  coding
	number  uint64
	stored  uint32
	content uint32
	sum     digest // of the stored bytes
	prev    digest // of the previous header
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (h *header) encode() []byte {
	b := make([]byte, headerBytes)
	binary.LittleEndian.PutUint32(b[0:], skippable)
	binary.LittleEndian.PutUint32(b[4:], headerBytes-skippedBytes)
	copy(b[8:], magic)
	binary.LittleEndian.PutUint32(b[16:], version)
	b[20], b[21] = byte(h.kind), byte(h.coding)
	binary.LittleEndian.PutUint64(b[24:], h.number)
	binary.LittleEndian.PutUint32(b[32:], h.stored)
	binary.LittleEndian.PutUint32(b[36:], h.content)
	copy(b[40:], h.sum[:])
	copy(b[72:], h.prev[:])
	binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	return b
}

// decodeHeader reads a header and checks it against the limits.
func decodeHeader(b []byte) (header, error) {
	var h header
	switch {
	case len(b) != headerBytes || !bytes.Equal(b[8:16], []byte(magic)):
		return h, fmt.Errorf("no block begins there")
	case binary.LittleEndian.Uint32(b[124:]) != crc32.Checksum(b[:124], castagnoli):
		return h, fmt.Errorf("the checksum of a block's header is wrong")
	case binary.LittleEndian.Uint32(b[16:]) != version:
		return h, fmt.Errorf("%w: a backup of format %d, this program reads %d", hansard.ErrVersion, binary.LittleEndian.Uint32(b[16:]), version)
	}
	h.kind, h.coding = kind(b[20]), coding(b[21])
	h.number = binary.LittleEndian.Uint64(b[24:])
	h.stored, h.content = binary.LittleEndian.Uint32(b[32:]), binary.LittleEndian.Uint32(b[36:])
	copy(h.sum[:], b[40:])
	copy(h.prev[:], b[72:])
	skipped := h.kind == kindAttachment
	switch {
	case h.kind < kindLines || h.kind > kindEnd, skipped != (h.coding == codingSkipped || h.coding == codingPacked), !skipped && h.coding != codingFrame:
		return h, fmt.Errorf("a block of the unknown kind %d/%d", h.kind, h.coding)
	case h.stored > maxStored, h.content > maxContent, h.kind == kindAttachment && h.content > attachmentPiece:
		return h, fmt.Errorf("a block of %d bytes, with %d of content: more than there can be", h.stored, h.content)
	}
	return h, nil
}

// The last 32 bytes of a backup say where its end block begins.
const trailerBytes = 32

const trailerMagic = "HANSBKPE"

func encodeTrailer(end int64) []byte {
	b := make([]byte, trailerBytes)
	binary.LittleEndian.PutUint32(b[0:], skippable)
	binary.LittleEndian.PutUint32(b[4:], trailerBytes-skippedBytes)
	copy(b[8:], trailerMagic)
	binary.LittleEndian.PutUint64(b[16:], uint64(end))
	binary.LittleEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return b
}

func decodeTrailer(b []byte) (end int64, ok bool) {
	if len(b) != trailerBytes || !bytes.Equal(b[8:16], []byte(trailerMagic)) || binary.LittleEndian.Uint32(b[28:]) != crc32.Checksum(b[:28], castagnoli) {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(b[16:])), true
}

// frame writes the header of a frame that zstd skips into the first bytes of stored.
func frame(stored []byte) {
	binary.LittleEndian.PutUint32(stored[0:], skippable)
	binary.LittleEndian.PutUint32(stored[4:], uint32(len(stored)-skippedBytes))
}

// unframe returns the content of such a frame.
func unframe(stored []byte) ([]byte, bool) {
	if len(stored) < skippedBytes || binary.LittleEndian.Uint32(stored[0:]) != skippable || int(binary.LittleEndian.Uint32(stored[4:])) != len(stored)-skippedBytes {
		return nil, false
	}
	return stored[skippedBytes:], true
}
