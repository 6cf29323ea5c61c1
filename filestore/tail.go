package filestore

import (
	"bytes"
	"errors"

	"hansard/internal/vfs"
)

// logTail is the end of what is whole in a log.
type logTail struct {
	last   *line
	lastAt int64
	end    int64 // behind it; more bytes are an unfinished batch
}

// looksPartial tells whether bytes may be a part of a line: no control
// characters, and not a whole line with something other than a newline behind.
func looksPartial(b []byte) bool {
	for _, c := range b {
		if c < 0x20 {
			return false
		}
	}
	// Content may look like the end of a line, but not with its checksum; so a
	// few looks are enough, and more would let content make this slow.
	for at, looks := 0, 0; looks < 16; looks++ {
		i := bytes.Index(b[at:], []byte(`,"crc":"`))
		if i < 0 || len(b) <= at+i+crcWidth {
			break
		}
		at += i + crcWidth
		if _, _, err := checkFrame(b[:at]); err == nil {
			return false
		}
	}
	return true
}

// readTail finds the last line that ends its batch. Only that much is read, so
// it costs the same for every length of the log.
func readTail(f vfs.File, size int64) (*logTail, error) {
	end, err := lastNewline(f, size)
	if err != nil {
		return nil, err
	}
	for end > 0 {
		at, b, err := lineBefore(f, end)
		if err != nil {
			return nil, err
		}
		l, err := decodeLine(b)
		if err != nil {
			return nil, damagedAt("", at, "%v", err)
		}
		if at > 0 {
			// A line that does not follow the one before was put there.
			if crc, err := crcBefore(f, at); err != nil || crc != l.prev {
				if err == nil {
					err = damagedAt("", at, "the line does not follow the one before it")
				}
				return nil, err
			}
		}
		if l.Left == 0 {
			return &logTail{last: l, lastAt: at, end: end}, nil
		}
		end = at
	}
	return nil, damagedAt("", 0, "no batch of it is whole")
}

// readLast is readTail without its rule, for plantHalfBatch.
func readLast(f vfs.File, size int64) (*logTail, error) {
	end, err := lastNewline(f, size)
	if err != nil || end == 0 {
		return nil, errors.Join(err, damagedAt("", 0, "no line"))
	}
	at, b, err := lineBefore(f, end)
	if err != nil {
		return nil, err
	}
	l, err := decodeLine(b)
	return &logTail{last: l, lastAt: at, end: end}, err
}

// looksUnfinished tells whether bytes are the beginning of lines of a log.
func looksUnfinished(b []byte) bool {
	const begin = `{"seq":`
	for len(b) > 0 {
		if n := min(len(b), len(begin)); string(b[:n]) != begin[:n] {
			return false
		}
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return looksPartial(b)
		}
		b = b[i+1:]
	}
	return true
}
