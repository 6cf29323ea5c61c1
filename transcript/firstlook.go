package transcript

import (
	"context"

	"hansard"
)

const (
	// lookEvents and lookBytes are how far into a session the first prompt is searched
	// for.
	lookEvents = 64
	lookBytes  = 1 << 20
	// lookMax is its maximum length, in characters.
	lookMax = 160
)

// A FirstLook is what people recognise a session without a title by: the first thing they
// said in it.
type FirstLook struct {
	// Text is the beginning of the first prompt, on one line; empty if there is none yet.
	Text string
	// Seq is that of the event it is from; 0 if there is none.
	Seq hansard.Seq
	// Settled says that appends can no longer change it.
	Settled bool
	// Bytes is how much data was read for it.
	Bytes int
}

// Look searches for the first prompt of a session, near the beginning of its log. One that
// was deleted through the OpenAI routes does not count. If reading ends in an error, what
// was found before it is returned with it.
func Look(ctx context.Context, s hansard.Store, id hansard.SessionID) (look FirstLook, err error) {
	type prompt struct {
		seq  hansard.Seq
		text string
	}
	var found []prompt
	deleted := map[hansard.Seq]bool{}
	n := 0
	for e, readErr := range s.Read(ctx, id, hansard.Range{Limit: lookEvents}) {
		if err = readErr; err != nil {
			break
		}
		read := Of(e)
		if text := read.Preview(lookMax); text != "" {
			found = append(found, prompt{e.Seq, text})
		}
		for _, part := range read.Parts {
			if part.Type == Deletion {
				deleted[part.Seq] = true
			}
		}
		n++
		if look.Bytes += len(e.Data); look.Bytes > lookBytes {
			break
		}
	}
	look.Settled = n == lookEvents || look.Bytes > lookBytes
	for _, f := range found {
		if !deleted[f.seq] {
			look.Text, look.Seq = f.text, f.seq
			break
		}
	}
	return look, err
}
