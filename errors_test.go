package hansard_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"hansard"
)

// TestKindRanksUnknownFirst: an unknown outcome is reported as such whatever caused it. A caller
// told "busy, try again" would store it twice.
func TestKindRanksUnknownFirst(t *testing.T) {
	for _, cause := range []error{
		hansard.ErrTooLarge, hansard.ErrInvalid, hansard.ErrNotFound, hansard.ErrDeleted, hansard.ErrExists, hansard.ErrConflict,
		hansard.ErrKeyReused, hansard.ErrHeld, hansard.ErrFenced, hansard.ErrDamaged, hansard.ErrUnreadable, hansard.ErrBusy, hansard.ErrNoSpace,
		hansard.ErrReadOnly, hansard.ErrFailed, hansard.ErrVersion, hansard.ErrUnsupported, hansard.ErrClosed,
		&hansard.BusyError{Holder: "process 7"}, // has its own hint
	} {
		err := fmt.Errorf("%w: %w", hansard.ErrUnknown, cause)
		if got := hansard.Kind(err); got != hansard.ErrUnknown {
			t.Errorf("Kind(%v) is %v", err, got)
		}
		if hint := hansard.Hint(err); !strings.Contains(hint, "same key") {
			t.Errorf("Hint(%v) is %q", err, hint)
		}
		if got := hansard.Kind(fmt.Errorf("wrapped: %w", cause)); got == nil || !errors.Is(cause, got) {
			t.Errorf("Kind of a wrapped %v is %v", cause, got)
		}
	}
	if got := hansard.Kind(errors.New("something else")); got != nil {
		t.Errorf("Kind of an error of nobody's is %v", got)
	}
}
