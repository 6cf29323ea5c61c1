package hansard_test

import (
	"errors"
	"testing"

	"hansard"
	"hansard/engine"
	"hansard/memstore"
)

// TestText: a text comes back as it was given, is stored as people would write it, and if it
// can't be stored unchanged it is refused instead of changed.
func TestText(t *testing.T) {
	for in, data := range map[string]string{
		"":              `""`,
		"hi":            `"hi"`,
		"<b> & \"q\"\\": `"<b> & \"q\"\\"`,
		"two\nlines\t":  `"two\nlines\t"`,
		"日本 👩‍👧":        `"日本 👩‍👧"`,
		"sep\u2028\x00": `"sep\u2028\u0000"`,
		"\uFFFD":        "\"\uFFFD\"",
	} {
		if got := string(hansard.Text(in)); got != data {
			t.Errorf("Text(%q) = %s, want %s", in, got, data)
		}
		e := hansard.Message("user", in)
		if err := engine.CheckBatch(&hansard.Batch{Events: []hansard.Event{e}}); err != nil {
			t.Errorf("Message(%q): %v", in, err)
		}
		if got := e.Text(); got != in {
			t.Errorf("Message(%q).Text() = %q", in, got)
		}
	}
	for _, in := range []string{"\xff", "a\xc3"} {
		_, err := memstore.New().Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", in)}})
		if !errors.Is(err, hansard.ErrInvalid) {
			t.Errorf("%q: %v", in, err)
		}
	}
	for data, want := range map[string]string{` "a" `: "a", `{"a": 1}`: `{"a": 1}`, `"\ud800"`: "\uFFFD", `null`: "null", ``: "", `"torn`: `"torn`} {
		if got := (hansard.Event{Data: []byte(data)}).Text(); got != want {
			t.Errorf("text of %s = %q, want %q", data, got, want)
		}
	}
}
