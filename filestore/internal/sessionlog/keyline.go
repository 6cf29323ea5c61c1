package sessionlog

import (
	"bytes"

	"hansard"
)

// KeySeen is where a key was used, for which content: a retry with the same key and hash
// is a replay and gets these seqs, with another hash it is refused (KeysCompared, failure
// 36).
type KeySeen struct {
	Hash        string
	First, Last hansard.Seq
}

// KeysOf are the keys in some lines, as an entry of the ring holds them. They were
// checked when they were written; a line that can't be decoded has no key.
func KeysOf(lines []byte) map[string]KeySeen {
	keys := map[string]KeySeen{}
	for len(lines) > 0 {
		i := bytes.IndexByte(lines, '\n')
		if i < 0 {
			break
		}
		// A quick look first: most lines have no key, and decoding each would cost more
		// than the append.
		if HasKey(lines[:i]) {
			if l, err := DecodeHead(lines[:i]); err == nil && l.Key != "" {
				keys[l.Key] = l.KeySeen()
			}
		}
		lines = lines[i+1:]
	}
	return keys
}

// KeySeen is what the line says about its key. The key is on the first line of its batch,
// and Left says how many follow: together they are the seqs of the receipt.
func (l *Line) KeySeen() KeySeen {
	return KeySeen{Hash: l.Hash, First: l.Seq, Last: l.Seq + hansard.Seq(l.Left)}
}
