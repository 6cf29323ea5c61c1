package wire

import (
	"errors"
	"fmt"
	"strconv"

	"hansard"
)

// AppendBatch writes a batch as the body of an append.
func AppendBatch(dst []byte, b *hansard.Batch) []byte {
	dst = append(dst, '{')
	if len(b.Events) > 0 {
		dst = append(dst, `"events":[`...)
		for i := range b.Events {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendGiven(dst, &b.Events[i])
		}
		dst = append(dst, `],`...)
	}
	if b.Patch != nil {
		dst = append(dst, `"patch":`...)
		dst = append(append(dst, Marshal(b.Patch)...), ',')
	}
	if b.Expect != nil {
		dst = append(dst, `"expect":`...)
		dst = append(strconv.AppendUint(dst, uint64(*b.Expect), 10), ',')
	}
	if b.Turn != "" {
		dst = append(dst, `"turn":`...)
		dst = append(appendString(dst, string(b.Turn)), ',')
	}
	if b.Key != "" {
		dst = append(dst, `"key":`...)
		dst = append(appendString(dst, b.Key), ',')
	}
	if b.Apart {
		dst = append(dst, `"apart":true,`...)
	}
	if !b.Meta.IsZero() {
		dst = append(append(append(dst, `"meta":`...), Marshal(b.Meta)...), ',')
	}
	return append(strconv.AppendBool(append(dst, `"create":`...), b.Create), '}')
}

// appendGiven writes an event that is to be stored: only the fields that callers set.
func appendGiven(dst []byte, e *hansard.Event) []byte {
	dst = append(dst, `{"kind":`...)
	dst = appendString(dst, e.Kind)
	if e.Role != "" {
		dst = appendString(append(dst, `,"role":`...), e.Role)
	}
	if e.Author != "" {
		dst = appendString(append(dst, `,"author":`...), e.Author)
	}
	dst = appendOptional(dst, e)
	if survives(e.Data) {
		dst = append(append(dst, `,"data":`...), e.Data...)
	} else {
		dst = appendString(append(dst, `,"raw":`...), string(e.Data))
	}
	return append(dst, '}')
}

// maxPatchBytes is more than any patch that a store accepts has. It is checked before
// decoding, because decoded labels take many times the memory.
const maxPatchBytes = 2 * hansard.MaxStateBytes

// parseEvents reads a list of no more than most events. It stops at the limit, not at the
// end of the list: a decoded event takes a hundred times the memory of {}.
func parseEvents(array []byte, most int, into *[]hansard.Event) error {
	return EachElement(array, func(value []byte) error {
		if len(*into) == most {
			return tooMany("events", most)
		}
		e, err := ParseEvent(value)
		var bad *hansard.InvalidError
		if errors.As(err, &bad) {
			bad.Field = fmt.Sprintf("events[%d].%s", len(*into), bad.Field)
		}
		*into = append(*into, e)
		return err
	})
}

func tooMany(field string, most int) error {
	return &hansard.InvalidError{Field: field, TooLarge: true, Reason: fmt.Sprintf("there are more than %d", most)}
}

// ParseBatch reads the body of an append. It checks the shape only; the store checks
// the rest.
func ParseBatch(object []byte) (hansard.Batch, error) {
	var b hansard.Batch
	var inbox bool
	err := EachMember(object, func(name string, value []byte) error {
		switch name {
		case "events":
			return parseEvents(value, hansard.MaxBatchEvents, &b.Events)
		case "patch":
			if len(value) > maxPatchBytes {
				return &hansard.InvalidError{Field: name, TooLarge: true, Reason: fmt.Sprintf("%d bytes, the limit is %d", len(value), maxPatchBytes)}
			}
			return Member(name, value, &b.Patch)
		case "expect":
			return Member(name, value, &b.Expect)
		case "turn":
			return Member(name, value, &b.Turn)
		case "key":
			return Member(name, value, &b.Key)
		case "apart":
			return Member(name, value, &b.Apart)
		case "meta":
			if len(value) > maxPatchBytes {
				return &hansard.InvalidError{Field: name, TooLarge: true, Reason: fmt.Sprintf("%d bytes, the limit is %d", len(value), maxPatchBytes)}
			}
			return Member(name, value, &b.Meta)
		case "create":
			return Member(name, value, &b.Create)
		case "inbox":
			return Member(name, value, &inbox)
		}
		return &hansard.InvalidError{Field: name, Reason: "an append has no such member"}
	})
	for i := range b.Events {
		b.Events[i].Inbox = b.Events[i].Inbox || inbox
	}
	return b, err
}
