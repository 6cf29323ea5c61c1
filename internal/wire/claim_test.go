package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"hansard"
)

// TestClaim: a claim arrives as it was sent, but for less than a millisecond, and
// as a remote holder's.
func TestClaim(t *testing.T) {
	for _, c := range []struct{ sent, want hansard.Claim }{
		{hansard.Claim{}, hansard.Claim{}},
		{hansard.Claim{Wait: hansard.Forever}, hansard.Claim{Wait: hansard.Forever}},
		{hansard.Claim{Wait: time.Microsecond}, hansard.Claim{Wait: time.Millisecond}}, // not none
		{hansard.Claim{Wait: time.Second, TTL: time.Minute, MaxHold: time.Hour, Exclusive: true, Label: "l", Steal: "s"},
			hansard.Claim{Wait: time.Second, TTL: time.Minute, MaxHold: time.Hour, Exclusive: true, Label: "l", Steal: "s"}},
	} {
		c.want.Remote = true
		on := NewClaim(c.sent, "name")
		got, err := on.Parse()
		if err != nil || got != c.want || on.Name != "name" {
			t.Errorf("%+v arrived as %+v (%q), %v; want %+v", c.sent, got, on.Name, err, c.want)
		}
	}
}

func TestClaimRefused(t *testing.T) {
	for field, c := range map[string]Claim{
		"claim":       {Name: strings.Repeat("n", maxClaimName+1)},
		"wait_ms":     {Wait: 1 << 60},
		"ttl_ms":      {TTL: -1 << 60},
		"max_hold_ms": {MaxHold: 1 << 60},
	} {
		var invalid *hansard.InvalidError
		if _, err := c.Parse(); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
