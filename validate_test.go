package hansard

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

func TestCheckID(t *testing.T) {
	for _, id := range []SessionID{"a", "Z9", "0", "a.b_c-d:e@f+g~h", "a..", SessionID(strings.Repeat("x", MaxIDBytes))} {
		if err := CheckID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []SessionID{"", ".", "-a", "_a", "~a", "a/b", `a\b`, "a b", "a\x00", "a\n", "ä", "a\xff", "../a", SessionID(strings.Repeat("x", MaxIDBytes+1))} {
		err := CheckID(id)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", id, err)
		}
		if got, want := errors.Is(err, ErrTooLarge), len(id) > MaxIDBytes; got != want {
			t.Errorf("%.20q: too large is %v, want %v", id, got, want)
		}
	}
}

func FuzzCheckID(f *testing.F) {
	grammar := regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._:@+~-]{0,127}\z`)
	for _, id := range []string{"", "a", "..", "a/b", "A~1", "a\x00", "a\n", strings.Repeat("x", 129), "é", "con", "-"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		err := CheckID(SessionID(id))
		if got, want := err == nil, grammar.MatchString(id); got != want {
			t.Errorf("CheckID(%q) = %v, the grammar says %v", id, err, want)
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("CheckID(%q) = %v, which is not an ErrInvalid", id, err)
		}
	})
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ err, is error }{
		{&InvalidError{}, ErrInvalid}, {&InvalidError{TooLarge: true}, ErrTooLarge}, {&ConflictError{}, ErrConflict}, {&KeyReusedError{}, ErrKeyReused},
		{&HeldError{}, ErrHeld}, {&FencedError{}, ErrFenced}, {&DamagedError{}, ErrDamaged}, {&BusyError{}, ErrBusy},
	} {
		if wrapped := fmt.Errorf("append: %w", c.err); !errors.Is(wrapped, c.is) {
			t.Errorf("%T is not %v", c.err, c.is)
		}
	}
	if errors.Is(&InvalidError{}, ErrTooLarge) {
		t.Error("every invalid input is too large")
	}
	if got := Hint(fmt.Errorf("append: %w", &ConflictError{})); !strings.Contains(got, "try again") {
		t.Errorf("the hint for a conflict is %q", got)
	}
	if got := Hint(&BusyError{}); !strings.Contains(got, "kill -CONT") {
		t.Errorf("the hint for a busy store is %q", got)
	}
	if got := Hint(errors.New("other")); got != "" {
		t.Errorf("the hint for a foreign error is %q", got)
	}
}
