package filestore

import (
	"math/rand/v2"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// TestLocateNearEnd: every line is found, near the end and far from it, in logs of short lines
// and in logs with lines longer than what is read at the end.
func TestLocateNearEnd(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 0))
		longest := []int{1, 200, 2000, 3 * nearEnd}[seed%4]
		n := 1 + r.IntN(150)
		log := buildLog("s", 5, n, func(i int) (hansard.Event, string) { return pad(i, r.IntN(longest)), "" })
		f, err := withLogs(t, 1, map[hansard.SessionID][]byte{"s": log}).Process("reader").Open(sessionlog.Path("s"), vfs.ReadOnly)
		if err != nil {
			t.Fatal(err)
		}
		header, err := sessionlog.ReadHeader(f, "s")
		if err != nil {
			t.Fatal(err)
		}
		tail, err := sessionlog.ReadTail(f, int64(len(log)))
		if err != nil {
			t.Fatal(err)
		}
		l := &openedLog{f: f, header: header, tail: tail}
		at := header.End
		for seq := range hansard.Seq(n) {
			found, ok := locate(l, tail, seq+1)
			if !ok || found.Last.Seq != seq+1 || found.LastAt != at {
				t.Fatalf("seed %d: line %d of %d is at %d, found %+v, %v", seed, seq+1, n, at, found, ok)
			}
			at = found.End
		}
		if at != int64(len(log)) {
			t.Fatalf("seed %d: the last line ends at %d, the log at %d", seed, at, len(log))
		}
		for _, none := range []hansard.Seq{0, hansard.Seq(n + 1), hansard.Seq(n + 2)} {
			if found, ok := locate(l, tail, none); ok {
				t.Fatalf("seed %d: line %d of %d is %+v", seed, none, n, found)
			}
		}
	}
}
