package hansard_test

import (
	"encoding/json"
	"strings"
	"testing"

	"hansard"
)

// TestStateOpFromJSON: an operation without a path is not taken for one on the whole document.
func TestStateOpFromJSON(t *testing.T) {
	for text, want := range map[string]hansard.StateOp{
		`{"op":"remove","path":""}`:                   {Op: "remove"},
		` {"path":"/a~1b", "op":"add", "value":null}`: {Op: "add", Path: "/a~1b", Value: []byte("null")},
		`{"op":"test","path":"/n","value": 1.50 }`:    {Op: "test", Path: "/n", Value: []byte("1.50")},
	} {
		var got hansard.StateOp
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Op != want.Op || got.Path != want.Path || string(got.Value) != string(want.Value) {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
	for text, reason := range map[string]string{
		`{"op":"remove"}`:                       `has no path`,
		`{"path":"/a"}`:                         `has no op`,
		`{"op":"remove","Path":"/a"}`:           `has a member "Path"`,
		`{"op":"move","from":"/a","path":"/b"}`: `has a member "from"`,
		`{"op":"remove","path":null}`:           `has the path null`,
		`{"op":1,"path":"/a"}`:                  `has the wrong op`,
		`{"op":"remove","path":"/a","path":""}`: `has two members "path"`,
		`["remove","/a"]`:                       `is not a JSON object`,
		`null`:                                  `is not a JSON object`,
		`{"op":"add","x":"` + strings.Repeat("y", 1000) + `"}`: `has a member "x"`,
	} {
		var got []hansard.StateOp
		err := json.Unmarshal([]byte("["+text+"]"), &got)
		if err == nil || !strings.Contains(err.Error(), reason) || len(err.Error()) > 300 {
			t.Errorf("%s: %v, want: it %s", text, err, reason)
		}
	}
}

// TestStatePath: whatever a member is called, its path leads to it and to no other.
func TestStatePath(t *testing.T) {
	for want, names := range map[string][]string{
		"":             nil,
		"/":            {""},
		"/a":           {"a"},
		"/a~1b/~01/~0": {"a/b", "~1", "~"},
	} {
		if got := hansard.StatePath(names...); got != want {
			t.Errorf("the path of %q is %q, want %q", names, got, want)
		}
	}
}
