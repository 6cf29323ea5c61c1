package sessionlog

import (
	"bytes"

	"hansard"
)

// KeySeen is where a key was used, and for which content: a retry with the same key and
// hash is a replay and gets these seqs; with another hash it is refused (KeysCompared,
// failure 36).
type KeySeen struct {
	Hash        string
	First, Last hansard.Seq
}

// Names are the names in some lines: keys of batches, and ids of events.
type Names struct {
	Keys map[string]KeySeen
	IDs  map[string][]byte // the line of each, without its newline
}

// NamesOf are the names in some lines, as an entry of the ring holds them. They were
// checked when they were written; a line that can't be decoded counts as having no name.
func NamesOf(lines []byte) *Names {
	n := &Names{}
	for len(lines) > 0 {
		i := bytes.IndexByte(lines, '\n')
		if i < 0 {
			break
		}
		line := lines[:i]
		lines = lines[i+1:]
		// A quick check first: most lines have no name, and decoding each would cost more than
		// the append.
		if !HasName(line) {
			continue
		}
		l, err := DecodeHead(line)
		if err != nil || l.Seq == 0 {
			continue
		}
		if l.Key != "" {
			if n.Keys == nil {
				n.Keys = map[string]KeySeen{}
			}
			n.Keys[l.Key] = l.KeySeen()
		}
		if l.ID != "" {
			if n.IDs == nil {
				n.IDs = map[string][]byte{}
			}
			n.IDs[l.ID] = line
		}
	}
	return n
}

// HasName is a quick check whether a line has a key or an id; metadata in it may contain
// the same bytes, so true means: decode it. Data is skipped: nearly all of it contains ids
// of some kind.
func HasName(line []byte) bool {
	if i := dataAt(line); i >= 0 {
		line = line[:i]
	}
	return bytes.Contains(line, []byte(`,"key":"`)) || bytes.Contains(line, []byte(`,"id":"`))
}

// HasAttachments is a quick check whether a line names attachments; true means: decode it.
func HasAttachments(line []byte) bool { return bytes.Contains(line, []byte(`,"attachments":[`)) }

// KeySeen is what the line says about its key. The key is on the first line of its batch,
// and Left says how many follow: together they are the seqs of the receipt.
func (l *Line) KeySeen() KeySeen {
	return KeySeen{Hash: l.Hash, First: l.Seq, Last: l.Seq + hansard.Seq(l.Left)}
}
