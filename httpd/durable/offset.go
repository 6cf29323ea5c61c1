package durable

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"hansard"
)

// Offsets have the same number of digits, so that they sort as texts do. A session has
// fewer events than sixteen digits can count.
const offsetDigits = 16

// The offsets that have a meaning of their own.
const (
	offsetStart = "-1"
	offsetNow   = "now"
)

func formatOffset(n hansard.Seq) string { return fmt.Sprintf("%0*d", offsetDigits, uint64(n)) }

func parseOffset(text string) (hansard.Seq, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || len(text) != offsetDigits || text[0] == '+' {
		return 0, malformed("the offset %.40q is none that this server gave", text)
	}
	return hansard.Seq(n), nil
}

// Cursors are the number of an interval of time, so that caches on the way do not give the
// same answer for ever.
var cursorEpoch = time.Date(2024, time.October, 9, 0, 0, 0, 0, time.UTC)

const (
	cursorInterval  = 20 * time.Second
	cursorMaxJitter = 3600 // seconds
)

// nextCursor is the cursor of now, and one past the client's if it has that already.
func nextCursor(now time.Time, have string) string {
	n := int64(now.Sub(cursorEpoch) / cursorInterval)
	if client, err := strconv.ParseInt(have, 10, 64); err == nil && client >= n && client < longestSafe {
		jitter := 1 + rand.Int64N(cursorMaxJitter)
		n = client + max(1, jitter/int64(cursorInterval/time.Second))
	}
	return strconv.FormatInt(n, 10)
}
