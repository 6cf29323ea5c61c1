package hansard

import (
	"fmt"
	"strings"
)

// The limits of every engine. Exceeding one is [ErrTooLarge].
const (
	MaxIDBytes     = 128
	MaxBatchBytes  = 16 << 20 // the data of all events of one batch
	MaxBatchEvents = 10_000
	MaxNameBytes   = 256 // kind, role, author, by
	MaxKeyBytes    = 256
	MaxEventID     = 256 // bytes of an event's id
	MaxTitleBytes  = 4 << 10
	MaxAttachments = 100 // that an event names
	MaxLabels      = 64
	MaxLabelBytes  = 256     // each name and each value
	MaxStateBytes  = 1 << 20 // the state document, and each patch to it
	MaxStateDepth  = 1000    // of objects and arrays in it
	MaxStateOps    = 256     // Patch.StateOps; together, as JSON, they have MaxStateBytes at most
	MaxStatePath   = 1 << 10 // bytes of a StateOp's path
	MaxQueryIDs    = 100     // Query.IDs
	MaxRedactions  = 10_000  // Redaction.Seqs

	// MaxAttachmentBytes is for one attachment.
	MaxAttachmentBytes = 4 << 30
)

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func tooLarge(field string, got, limit int, unit string) error {
	return &InvalidError{Field: field, TooLarge: true, Reason: fmt.Sprintf("%d %s, the limit is %d", got, unit, limit)}
}

// CheckID checks that an id is a valid session id.
func CheckID(id SessionID) error {
	if id == "" {
		return invalid("id", "it is empty")
	}
	if len(id) > MaxIDBytes {
		return tooLarge("id", len(id), MaxIDBytes, "bytes")
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if letter || i > 0 && strings.IndexByte("._-:@+~", c) >= 0 {
			continue
		}
		if i == 0 {
			return invalid("id", "%q must begin with a letter or a digit", string(id))
		}
		return invalid("id", "%q has %q at byte %d; letters, digits and . _ - : @ + ~ are allowed", string(id), c, i)
	}
	return nil
}
