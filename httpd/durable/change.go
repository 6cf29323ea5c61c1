package durable

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"hansard"
	"hansard/internal/wire"
)

// change is a change of what a stream has in the session's state.
type change struct {
	ops []hansard.StateOp
	// exact: it holds for the session as it was looked at, and no other. A test can't
	// tell that something is not there.
	exact bool
}

// change begins a change; what it is to be in is there.
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

// add sets what is not there yet.
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

// produced notes how far a producer is.
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

// idlest is the producer that did not write for the longest time.
func (c *config) idlest() string {
	found := ""
	for id, p := range c.Producers {
		if at := c.Producers[found].At; found == "" || p.At < at || p.At == at && id < found {
			found = id
		}
	}
	return found
}

// sequenced notes the last Stream-Seq.
func (c *config) sequenced(ch *change, seq string) {
	if c.hasOwnSeq {
		ch.swap(pathSeq, c.Seq, seq)
		return
	}
	ch.add(pathSeq, seq)
}

// closedBy tells whether an event closed the stream: this one, and not the one that it is a
// fork of.
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

// events are what a body adds to the stream. A new stream may have no messages.
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

// chunk is what bytes are kept as that are no text.
type chunk struct {
	Base64 *[]byte `json:"base64"`
}

// encodeChunk makes data of bytes: a string, if they are text and that is no longer.
func encodeChunk(b []byte) json.RawMessage {
	encoded := base64.StdEncoding.EncodedLen(len(b))
	if utf8.Valid(b) {
		if text := wire.Marshal(string(b)); len(text) <= encoded+len(`{"base64":""}`) {
			return text
		}
	}
	return wire.Marshal(chunk{&b})
}

// decodeChunk gives the bytes of data; ok is false if it is something else.
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
