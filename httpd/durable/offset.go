package durable

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"hansard"
)

// Offsets all have the same number of digits, so that they sort as texts. A session has
// fewer events than sixteen digits can count. They have the shape of the reference server's
// offsets, because the protocol's tests begin at its first one: after the seq there is a
// second number, which is always 0.
const (
	offsetDigits = 16
	offsetEnd    = "_0000000000000000"
)

// The offsets that have a meaning of their own.
const (
	offsetStart = "-1"
	offsetNow   = "now"
)

func formatOffset(n hansard.Seq) string {
	return fmt.Sprintf("%0*d%s", offsetDigits, uint64(n), offsetEnd)
}

func parseOffset(text string) (hansard.Seq, error) {
	digits, ok := strings.CutSuffix(text, offsetEnd)
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || !ok || len(digits) != offsetDigits || digits[0] == '+' {
		return 0, malformed("the offset %.40q is none that this server gave", text)
	}
	return hansard.Seq(n), nil
}

// A cursor is the number of the current time interval, so that caches in between do not
// return the same answer for ever.
var cursorEpoch = time.Date(2024, time.October, 9, 0, 0, 0, 0, time.UTC)

const (
	cursorInterval  = 20 * time.Second
	cursorMaxJitter = 3600 // seconds
)

// nextCursor is the current cursor or, if the client already has that one, the client's
// plus a random distance.
func nextCursor(now time.Time, have string) string {
	n := int64(now.Sub(cursorEpoch) / cursorInterval)
	if client, err := strconv.ParseInt(have, 10, 64); err == nil && client >= n && client < longestSafe {
		jitter := 1 + rand.Int64N(cursorMaxJitter)
		n = client + max(1, jitter/int64(cursorInterval/time.Second))
	}
	return strconv.FormatInt(n, 10)
}
