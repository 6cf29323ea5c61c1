// Package engine has the rules that all engines share: what a store accepts, what a
// batch stores, how a patch merges, which grant admits a write. A program that only
// uses a store needs none of it; a new engine needs all of it, and package storetest to
// show that it is a [hansard.Store].
//
// Nothing here keeps state or does I/O. The functions take the contract's types,
// and the errors they return are those that the contract names.
package engine

import (
	"fmt"

	"hansard"
)

// invalid refuses a field of the input.
func invalid(field, format string, args ...any) error {
	return &hansard.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// tooLarge refuses a field that is larger than its limit.
func tooLarge(field string, got, limit int, unit string) error {
	return &hansard.InvalidError{Field: field, TooLarge: true, Reason: fmt.Sprintf("%d %s, the limit is %d", got, unit, limit)}
}
