package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hansard"
)

// JSON Patch (RFC 6902) on the decoded state. Existing libraries do not sort members,
// accept indexes such as 01 and pointers such as /~2, pass tests of places that do not
// exist, or refuse documents that are not objects (docs/decisions/0017).

// checkStateOps checks what can be checked of operations without the state.
func checkStateOps(p *hansard.Patch) error {
	if len(p.StateOps) == 0 {
		return nil
	}
	if len(p.State) > 0 {
		return invalid("state_ops", "a patch has either state or state_ops")
	}
	if len(p.StateOps) > hansard.MaxStateOps {
		return tooLarge("state_ops", len(p.StateOps), hansard.MaxStateOps, "operations")
	}
	for i := range p.StateOps {
		if err := checkStateOp(opField(i), &p.StateOps[i]); err != nil {
			return err
		}
	}
	// As JSON, because that is how they are stored: a character of a path may take six bytes.
	text, err := encodeState(p.StateOps)
	if err != nil {
		return err
	}
	if len(text) > hansard.MaxStateBytes {
		return tooLarge("state_ops", len(text), hansard.MaxStateBytes, "bytes")
	}
	return nil
}

func opField(i int) string { return fmt.Sprintf("state_ops[%d]", i) }

func checkStateOp(field string, o *hansard.StateOp) error {
	if err := checkText(field+".path", o.Path, hansard.MaxStatePath); err != nil {
		return err
	}
	if _, err := parsePointer(o.Path); err != nil {
		return invalid(field+".path", "%v", err)
	}
	switch o.Op {
	case hansard.OpRemove:
		if len(o.Value) > 0 {
			return invalid(field+".value", "remove takes no value")
		}
		return nil
	case hansard.OpAdd, hansard.OpReplace, hansard.OpTest:
	case "move", "copy":
		return invalid(field+".op", "there is no %s: add the value, and remove it from its old place", o.Op)
	default:
		return invalid(field+".op", "it has to be add, replace, remove or test")
	}
	if len(o.Value) > hansard.MaxStateBytes {
		return tooLarge(field+".value", len(o.Value), hansard.MaxStateBytes, "bytes")
	}
	if err := checkJSON(field+".value", o.Value); err != nil {
		return err
	}
	if n := depth(o.Value); n > hansard.MaxStateDepth {
		return tooLarge(field+".value", n, hansard.MaxStateDepth, "levels")
	}
	return nil
}

// parsePointer splits a JSON pointer (RFC 6901) into its names.
func parsePointer(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	if path[0] != '/' {
		return nil, errors.New("it has to begin with a slash; the whole document is an empty path")
	}
	names := strings.Split(path[1:], "/")
	for i, name := range names {
		plain := strings.ReplaceAll(strings.ReplaceAll(name, "~0", ""), "~1", "")
		if strings.Contains(plain, "~") {
			return nil, errors.New("a tilde is written ~0, and a slash in a name ~1")
		}
		names[i] = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
	}
	return names, nil
}

// applyOps applies operations that were checked, in order. The value it is given may be
// changed even if there is an error.
func applyOps(session hansard.SessionID, state any, ops []hansard.StateOp) (any, error) {
	for i := range ops {
		o, err := decodeOp(&ops[i])
		if err == nil {
			state, err = o.apply(state, o.path)
		}
		switch {
		case err == nil:
		case o.op == hansard.OpTest:
			// Also if there is nothing to compare with: someone removed it.
			return nil, &hansard.StateTestError{Session: session, Index: i, Path: ops[i].Path}
		default:
			return nil, invalid(opField(i)+".path", "%v", err)
		}
	}
	return state, nil
}

// replayOps applies what can be applied.
func replayOps(state any, ops []hansard.StateOp) any {
	for i := range ops {
		o, err := decodeOp(&ops[i])
		if err != nil || o.op == hansard.OpTest {
			continue
		}
		if next, err := o.apply(state, o.path); err == nil {
			state = next
		}
	}
	return state
}

// stateOp is an operation, decoded.
type stateOp struct {
	op    string
	path  []string
	value any
}

func decodeOp(o *hansard.StateOp) (stateOp, error) {
	path, err := parsePointer(o.Path)
	if err != nil {
		return stateOp{}, err
	}
	value, err := decodeState(o.Value)
	return stateOp{o.Op, path, value}, err
}

var errTest = errors.New("it has another value")

// apply returns the new value of a node; path leads from the node to the operation's place.
// After an error the node is as it was.
func (o *stateOp) apply(node any, path []string) (any, error) {
	if len(path) == 0 {
		return o.here(node)
	}
	name, last := path[0], len(path) == 1
	switch in := node.(type) {
	case map[string]any:
		child, there := in[name]
		switch {
		case last && o.op == hansard.OpAdd:
			in[name] = o.value
		case !there:
			return nil, fmt.Errorf("the state has no member %q there", name)
		case last && o.op == hansard.OpRemove:
			delete(in, name)
		default:
			next, err := o.apply(child, path[1:])
			if err != nil {
				return nil, err
			}
			in[name] = next
		}
		return in, nil
	case []any:
		i, err := arrayIndex(name, len(in), last && o.op == hansard.OpAdd)
		switch {
		case err != nil:
			return nil, err
		case last && o.op == hansard.OpAdd:
			return slices.Insert(in, i, o.value), nil
		case last && o.op == hansard.OpRemove:
			return slices.Delete(in, i, i+1), nil
		}
		next, err := o.apply(in[i], path[1:])
		if err != nil {
			return nil, err
		}
		in[i] = next
		return in, nil
	}
	return nil, fmt.Errorf("the state has neither an object nor an array that %q could be in", name)
}

// here is apply at the operation's place, which exists.
func (o *stateOp) here(node any) (any, error) {
	switch o.op {
	case hansard.OpTest:
		if !sameValue(node, o.value) {
			return nil, errTest
		}
		return node, nil
	case hansard.OpRemove: // the whole document, which becomes null
		return nil, nil
	}
	return o.value, nil
}

// arrayIndex is the index that a name means in an array of n elements; adding allows the
// place after the last.
func arrayIndex(name string, n int, adding bool) (int, error) {
	if adding {
		if name == "-" {
			return n, nil
		}
		n++
	}
	i, err := strconv.Atoi(name)
	// Not 01, +1 or -0: a place has one name.
	if err != nil || strconv.Itoa(i) != name || i < 0 || i >= n {
		return 0, fmt.Errorf("the array there has no place %q", name)
	}
	return i, nil
}

// sameValue compares two decoded values as RFC 6902 asks: members in any order, numbers by
// value.
func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			if other, there := b[name]; !there || !sameValue(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameValue)
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(string(a), string(b))
	}
	return a == b
}

// sameNumber compares two JSON numbers exactly: 1.50 is 15e-1, and no digit is lost. Those
// with huge exponents are the same only if they are spelt alike.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	da, ea, okA := scientific(a)
	db, eb, okB := scientific(b)
	return okA && okB && da == db && ea == eb
}

// scientific writes a JSON number as digits, without zeros at either end, times a power of
// ten. The digits have the sign; those of 0 are empty.
func scientific(number string) (digits string, exponent int64, ok bool) {
	mantissa, power, found := strings.Cut(strings.ToLower(number), "e")
	ok = true
	if found {
		var err error
		exponent, err = strconv.ParseInt(power, 10, 48)
		ok = err == nil
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent -= int64(len(fraction))
	digits = strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	exponent += int64(len(digits) - len(short))
	if short == "" {
		return "", 0, true
	}
	if negative {
		short = "-" + short
	}
	return short, exponent, ok
}
