package wire

import (
	"fmt"
	"time"

	"hansard"
)

// Claim is a request for a turn.
type Claim struct {
	Wait      int64  `json:"wait_ms"` // -1 waits as long as the connection lasts
	TTL       int64  `json:"ttl_ms"`
	MaxHold   int64  `json:"max_hold_ms"`
	Exclusive bool   `json:"exclusive"`
	Label     string `json:"label"`
	Steal     string `json:"steal"`
	// Name is the client's name for this claim, by which it can be withdrawn.
	Name string `json:"claim"`
}

// maxClaimName is the maximum length of a claim's name.
const maxClaimName = 128

// CheckClaimName checks that a claim may have this name.
func CheckClaimName(name string) error {
	if len(name) > maxClaimName {
		return &hansard.InvalidError{Field: "claim", TooLarge: true, Reason: fmt.Sprintf("the limit is %d bytes", maxClaimName)}
	}
	return nil
}

// NewClaim describes a claim.
func NewClaim(c hansard.Claim, name string) Claim {
	wait := int64(-1)
	if c.Wait != hansard.Forever {
		wait = int64((c.Wait + time.Millisecond - 1) / time.Millisecond) // round up: a short wait is not zero
	}
	return Claim{wait, c.TTL.Milliseconds(), c.MaxHold.Milliseconds(), c.Exclusive, c.Label, c.Steal, name}
}

// Parse returns the claim that is described. Its holder is the client, which outlives
// the server and may continue through another.
func (c *Claim) Parse() (hansard.Claim, error) {
	out := hansard.Claim{Exclusive: c.Exclusive, Label: c.Label, Steal: c.Steal, Remote: true}
	err := CheckClaimName(c.Name)
	set := func(name string, ms int64, into *time.Duration) {
		const most = int64(1<<63-1) / int64(time.Millisecond)
		if ms > most || ms < -most {
			err = &hansard.InvalidError{Field: name, Reason: "it is out of range"}
			return
		}
		*into = time.Duration(ms) * time.Millisecond
	}
	set("wait_ms", c.Wait, &out.Wait)
	set("ttl_ms", c.TTL, &out.TTL)
	set("max_hold_ms", c.MaxHold, &out.MaxHold)
	if c.Wait == -1 {
		out.Wait = hansard.Forever
	}
	return out, err
}
