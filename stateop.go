package hansard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// The operations of a [StateOp].
const (
	OpAdd     = "add"
	OpReplace = "replace"
	OpRemove  = "remove"
	OpTest    = "test"
)

// StateOp is one operation of JSON Patch (RFC 6902) on the state document. A session
// without a state has the document null.
//
// There is no "move" and no "copy": what they would do depends on a value that the log
// does not show. Add the value, and remove it from its old place.
type StateOp struct {
	// Op is "add", "replace", "remove" or "test". A test that fails refuses the whole
	// batch: see [StateTestError].
	Op string `json:"op"`
	// Path is a JSON pointer (RFC 6901), "" for the whole document. In an array "-"
	// is the place after the last element, for add only.
	Path string `json:"path"`
	// Value is any JSON value, null too; remove has none. Numbers keep their digits;
	// a test compares them by their values.
	Value json.RawMessage `json:"value,omitempty"`
}

// UnmarshalJSON is stricter than the default: an operation whose path was forgotten would
// be one on the whole document, and unknown members (from, say) would change its meaning.
func (o *StateOp) UnmarshalJSON(data []byte) error {
	*o = StateOp{}
	given := map[string]bool{}
	bad := func(format string, args ...any) error {
		const most = 80
		text := string(data)
		if len(text) > most {
			text = text[:most] + "…"
		}
		return invalid("state_ops", "the operation %q %s", text, fmt.Sprintf(format, args...))
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if begin, err := dec.Token(); err != nil || begin != json.Delim('{') {
		return bad("is not a JSON object")
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return bad("is not JSON: %v", err)
		}
		name, _ := token.(string)
		if given[name] {
			return bad("has two members %q", name)
		}
		given[name] = true
		var text *string
		switch name {
		case "value":
			err = dec.Decode(&o.Value)
		case "op", "path":
			if err = dec.Decode(&text); err == nil && text == nil {
				return bad("has the %s null", name)
			}
		default:
			return bad("has a member %q, which is unknown", name)
		}
		switch {
		case err != nil:
			return bad("has the wrong %s: %v", name, err)
		case name == "op":
			o.Op = *text
		case name == "path":
			o.Path = *text
		}
	}
	for _, name := range []string{"op", "path"} {
		if !given[name] {
			return bad("has no %s", name)
		}
	}
	return nil
}

var escapePath = strings.NewReplacer("~", "~0", "/", "~1")

// StatePath is the [StateOp] path of a member of the state document, given the names that lead to
// it, which may be any text.
func StatePath(names ...string) string {
	var path strings.Builder
	for _, name := range names {
		path.WriteString("/" + escapePath.Replace(name))
	}
	return path.String()
}
