// Package crc32c is the checksum of everything the file engine writes: slots, entries,
// control records, lines, lease records. CRC-32C, because processors have an instruction
// for it (hash/crc32 uses it), and because it finds every single-bit error and every
// burst of up to 32 bits. It protects against disks and crashes, not against people:
// anybody can compute it.
package crc32c

import "hash/crc32"

// table selects Castagnoli's polynomial; crc32.IEEE would be another checksum.
var table = crc32.MakeTable(crc32.Castagnoli)

// Sum is the CRC-32C of b; of no bytes it is 0.
func Sum(b []byte) uint32 { return crc32.Checksum(b, table) }

// Add extends a checksum by b.
func Add(sum uint32, b []byte) uint32 { return crc32.Update(sum, table, b) }
