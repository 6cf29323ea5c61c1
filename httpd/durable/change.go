package durable

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"hansard"
	"hansard/internal/wire"
)

// change is a change to the stream's part of the session's state.
type change struct {
	ops []hansard.StateOp
	// exact: the change needs the session to be exactly as it was read, because a test
	// operation can't check that something is absent.
	exact bool
}

// change begins a change. It adds the objects that hold the stream's part if they are missing.
func (c *config) change() (*change, error) {
	out := &change{}
	switch {
	case c.stateKind == stateOther:
		return nil, refused("the session's state is not an object, so there is no place for what a stream has")
	case c.stateKind == stateNull:
		out.add("", struct{}{})
		out.add(pathDurable, struct{}{})
	case !c.hasDurable:
		out.add(pathDurable, struct{}{})
	}
	return out, nil
}

func (ch *change) set(op, path string, value any) {
	ch.ops = append(ch.ops, hansard.StateOp{Op: op, Path: path, Value: wire.Marshal(value)})
}

// add sets a member that does not exist yet.
func (ch *change) add(path string, value any) {
	ch.set(hansard.OpAdd, path, value)
	ch.exact = true
}

// swap replaces a value that is known.
func (ch *change) swap(path string, old, fresh any) {
	ch.set(hansard.OpTest, path, old)
	ch.set(hansard.OpReplace, path, fresh)
}

func (ch *change) patch() *hansard.Patch {
	if len(ch.ops) == 0 {
		return nil
	}
	return &hansard.Patch{StateOps: ch.ops}
}

// produced records a producer's progress.
func (c *config) produced(ch *change, id string, p producer) {
	path := pathProducers + hansard.StatePath(id)
	old, known := c.Producers[id]
	switch {
	case known:
		ch.swap(path, old, p)
		return
	case !c.hasProducers:
		ch.add(pathProducers, struct{}{})
	case len(c.Producers) >= maxProducers:
		ch.ops = append(ch.ops, hansard.StateOp{Op: hansard.OpRemove, Path: pathProducers + hansard.StatePath(c.idlest())})
	}
	ch.add(path, p)
}

// idlest is the producer that has not written for the longest time.
func (c *config) idlest() string {
	found := ""
	for id, p := range c.Producers {
		if at := c.Producers[found].At; found == "" || p.At < at || p.At == at && id < found {
			found = id
		}
	}
	return found
}

// sequenced records the last Stream-Seq.
func (c *config) sequenced(ch *change, seq string) {
	if c.hasOwnSeq {
		ch.swap(pathSeq, c.Seq, seq)
		return
	}
	ch.add(pathSeq, seq)
}

// closedBy reports whether an event closed this stream, and not the one that it is a fork of.
func (c *config) closedBy(e *hansard.Event) bool {
	if e.Patch == nil || c.parent != nil && e.Seq <= c.parent.At {
		return false
	}
	for _, op := range e.Patch.StateOps {
		if op.Op == hansard.OpAdd && op.Path == pathClosed {
			return true
		}
	}
	return false
}

// events are the events that a body adds to the stream. Only for a new stream may the array
// of messages be empty.
func (c *config) events(body []byte, fresh bool) ([]hansard.Event, error) {
	if len(body) == 0 {
		return nil, nil
	}
	if !c.json() {
		return []hansard.Event{{Kind: kindChunk, Data: encodeChunk(body)}}, nil
	}
	if text := bytes.TrimSpace(body); len(text) == 0 || text[0] != '[' {
		if !json.Valid(body) {
			return nil, malformed("the body is not JSON")
		}
		return []hansard.Event{{Kind: hansard.KindMessage, Data: text}}, nil
	}
	var out []hansard.Event
	err := wire.EachElement(body, func(value []byte) error {
		if len(out) == hansard.MaxBatchEvents {
			return &hansard.InvalidError{Field: "body", TooLarge: true, Reason: "it has more messages than one request may append"}
		}
		out = append(out, hansard.Event{Kind: hansard.KindMessage, Data: value})
		return nil
	})
	if err == nil && len(out) == 0 && !fresh {
		err = malformed("the array has no messages")
	}
	return out, err
}

// chunk is the event data for bytes that are not stored as text.
type chunk struct {
	Base64 *[]byte `json:"base64"`
}

// encodeChunk turns bytes into event data: a string, if they are text and that is not longer.
func encodeChunk(b []byte) json.RawMessage {
	encoded := base64.StdEncoding.EncodedLen(len(b))
	if utf8.Valid(b) {
		if text := wire.Marshal(string(b)); len(text) <= encoded+len(`{"base64":""}`) {
			return text
		}
	}
	return wire.Marshal(chunk{&b})
}

// decodeChunk returns the bytes of event data; ok is false if it is not a chunk.
func decodeChunk(data json.RawMessage) (b []byte, ok bool) {
	var text string
	if json.Unmarshal(data, &text) == nil && len(data) > 0 && data[0] == '"' {
		return []byte(text), true
	}
	var c chunk
	if json.Unmarshal(data, &c) == nil && c.Base64 != nil {
		return *c.Base64, true
	}
	return nil, false
}
