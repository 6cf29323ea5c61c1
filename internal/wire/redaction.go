package wire

import "hansard"

// Redaction is the body of a request to redact events.
type Redaction struct {
	Seqs   []hansard.Seq `json:"seqs"`
	Reason string        `json:"reason,omitempty"`
	Turn   hansard.Grant `json:"turn,omitempty"`
}
