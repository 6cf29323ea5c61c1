package main

import (
	"context"
	"fmt"
	"testing"

	"hansard/internal/wire"
)

// TestEveryErrorHasItsCode: every kind of the contract's errors has a code of its own, which
// programs compare.
func TestEveryErrorHasItsCode(t *testing.T) {
	codes := map[string]error{}
	for _, kind := range wire.ContractErrors() {
		exit, code := outcome(context.Background(), fmt.Errorf("wrapped: %w", kind))
		if exit == exitOK || code == "error" {
			t.Errorf("%v: exit code %d, %q", kind, exit, code)
		}
		if other, twice := codes[code]; twice {
			t.Errorf("%v and %v both have the code %q", other, kind, code)
		}
		codes[code] = kind
	}
}
