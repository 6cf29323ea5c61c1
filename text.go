package hansard

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Message is an event of kind "message" with a text, ready for a [Batch].
func Message(role, text string) Event {
	return Event{Kind: KindMessage, Role: role, Data: Text(text)}
}

// Text is a text as event data: the JSON string that holds it. Text that is not
// valid UTF-8 is not changed to something that is: the store refuses it with
// [ErrInvalid].
func Text(s string) json.RawMessage {
	if !utf8.ValidString(s) {
		return json.RawMessage(`"` + s + `"`) // encoding/json would store U+FFFD instead
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string into memory: can't fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Text is the event's data as text: what a JSON string holds, and any other JSON
// value as it is written.
func (e Event) Text() string {
	var s string
	if data := bytes.TrimSpace(e.Data); len(data) > 0 && data[0] == '"' && json.Unmarshal(data, &s) == nil {
		return s
	}
	return string(e.Data)
}
