package sessionlog

import (
	"bytes"

	"hansard"
	"hansard/filestore/internal/crc32c"
)

// A damaged header would cost the session its title, labels and state although every event
// is intact. But the first event's line has the header's checksum in prev: trying all
// values of all bytes finds a single wrong byte, and restores the log byte for byte (W4,
// TestRepairHeader).

// MaxSearched is the longest header that is searched: the search computes 255 checksums of
// the header for each of its bytes, which at 4 KiB is 4 GiB of CRC.
const MaxSearched = 4 << 10

// RestoreHeader is the original header, with its newline, of a log in which one byte of it
// was damaged, or any bytes of its checksum, or the newline. region is everything before
// the first event's line; first is that line, which is intact. Nil: unknown, because more
// is damaged, or because two different headers would fit. A wrong guess would be a forged
// header with a valid checksum, so only a unique answer counts.
func RestoreHeader(region []byte, id hansard.SessionID, first *Line) []byte {
	if len(region) < SuffixWidth || len(region) > MaxSearched {
		return nil
	}
	// The old checksum and newline are ignored: the first line says what the crc was.
	content := bytes.Clone(region[:len(region)-1-CRCWidth])
	end := append(appendHex([]byte(`,"crc":"`), first.Prev), '"', '}')
	var found []byte
	// try tests the current content. False: a second answer was found, so it is not clear
	// which one is right. A matching checksum alone is not enough: with a million tries it
	// may match by chance, but then it is not a valid header of this session.
	try := func() bool {
		if crc32c.Sum(content) != first.Prev {
			return true
		}
		b := append(bytes.Clone(content), end...)
		l, err := Decode(b)
		if err != nil {
			return true
		}
		if _, ok := ParseUID(l.UID); !ok || l.Version != FormatVersion || l.ID != string(id) || l.Prev != 0 || l.Seq != 0 ||
			l.Left > 0 && l.Left != first.Left+1 {
			return true
		}
		unclear := found != nil
		found = append(b, '\n')
		return !unclear
	}
	// If only the checksum was damaged, content is right as it is.
	try()
	if found != nil {
		return found
	}
	for i, was := range content {
		for c := 0; c < 256; c++ {
			if byte(c) == was {
				continue
			}
			if content[i] = byte(c); !try() {
				return nil
			}
		}
		content[i] = was
	}
	return found
}
