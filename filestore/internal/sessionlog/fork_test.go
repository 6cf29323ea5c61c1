package sessionlog

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"hansard"
)

// TestForkHeader: the header of a fork has the length and the checksum of its parent's,
// whatever both say, so that the lines after it stay unchanged.
func TestForkHeader(t *testing.T) {
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, 0))
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	fits := 0
	for range 2000 {
		meta := hansard.Meta{}
		if rng.IntN(2) == 0 {
			meta = hansard.Meta{Title: strings.Repeat("é\u2028", rng.IntN(50)), State: []byte(`{"a":[1.50,"<"]}`)}
		}
		raw := AppendHeader(nil, randomID(rng), rng.Uint64(), now, rng.IntN(3), meta)
		l, err := Decode(raw[:len(raw)-1])
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		uid, _ := ParseUID(l.UID)
		parent := &Header{Line: l, LogUID: uid, End: int64(len(raw))}
		head := parent.Head()
		head.ID, head.UID, head.Created, head.Own = randomID(rng), rng.Uint64(), now.Add(time.Hour), 1+rng.Int64N(1<<40)
		fork, ok := ForkHeader(parent, &head)
		if len(head.ID) <= max(len(l.ID), idRoom) && !ok {
			t.Errorf("seed %d: no header of fork %q has the length of that of %q", seed, head.ID, l.ID)
		}
		if !ok {
			continue
		}
		fits++
		f, err := Decode(fork[:len(fork)-1])
		if err != nil || len(fork) != len(raw) || f.CRC != l.CRC {
			t.Fatalf("seed %d: %v, %d bytes and not %d, %08x and not %08x\n%s%s", seed, err, len(fork), len(raw), f.CRC, l.CRC, raw, fork)
		}
		if f.ID != string(head.ID) || f.Own != head.Own || f.Left != l.Left || !bytes.Equal(Marshal(f.Snap), Marshal(l.Snap)) || !f.Created.Equal(head.Created) {
			t.Fatalf("seed %d: the header of the fork says %+v", seed, f)
		}
	}
	if fits < 500 {
		t.Errorf("%d of 2000 headers fit", fits)
	}
}

// TestSaltReachesAll: the salt digits of a header can produce every checksum, because they
// can produce each single bit.
func TestSaltReachesAll(t *testing.T) {
	head := &Head{ID: "s", Created: time.Unix(0, 0)}
	raw := AppendHead(nil, head)
	for bit := range 32 {
		want := LineCRC(raw) ^ 1<<bit
		if b, ok := headerLike(head, len(raw), want); !ok || LineCRC(b) != want {
			t.Errorf("bit %d: %v", bit, ok)
		}
	}
}
