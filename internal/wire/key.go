package wire

import (
	"fmt"
	"strings"

	"hansard"
)

// KeyHeader is the header with a write's idempotency key.
const KeyHeader = "Idempotency-Key"

// ParseKey reads an Idempotency-Key: a structured field string, in quotes, or without
// quotes, as many clients send it. keys are the values of the header.
func ParseKey(keys []string) (string, error) {
	wrong := func(reason string) (string, error) {
		return "", &hansard.InvalidError{Field: KeyHeader, Reason: reason}
	}
	if len(keys) > 1 {
		return wrong("it is given twice")
	}
	key := strings.TrimSpace(keys[0])
	if inner, ok := strings.CutPrefix(key, `"`); ok {
		var out strings.Builder
		for i := 0; i < len(inner); i++ {
			switch c := inner[i]; {
			case c == '\\' && i+1 < len(inner) && (inner[i+1] == '"' || inner[i+1] == '\\'):
				i++
				out.WriteByte(inner[i])
			case c == '"' && i == len(inner)-1:
				if out.Len() == 0 {
					return wrong("it is empty")
				}
				return out.String(), nil
			case c == '"' || c == '\\':
				return wrong(fmt.Sprintf("its quotes do not match (at byte %d)", i+1))
			default:
				out.WriteByte(c)
			}
		}
		return wrong("its closing quote is missing")
	}
	if key == "" {
		return wrong("it is empty")
	}
	return key, nil
}
