package hansard

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits every engine keeps. Over one of them is [ErrTooLarge].
const (
	MaxIDBytes     = 128
	MaxBatchBytes  = 16 << 20 // the data of all events of one batch
	MaxBatchEvents = 10_000
	MaxNameBytes   = 256 // kind, role, author
	MaxKeyBytes    = 256
	MaxTitleBytes  = 4 << 10
	MaxLabels      = 64
	MaxLabelBytes  = 256     // each name and each value
	MaxStateBytes  = 1 << 20 // the state document, and each patch to it
	MaxStateDepth  = 1000    // of objects and arrays in it
)

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func tooLarge(field string, got, limit int, unit string) error {
	return &InvalidError{Field: field, TooLarge: true, Reason: fmt.Sprintf("%d %s, the limit is %d", got, unit, limit)}
}

// CheckID tells whether an id is a valid session id.
func CheckID(id SessionID) error {
	if id == "" {
		return invalid("id", "it is empty")
	}
	if len(id) > MaxIDBytes {
		return tooLarge("id", len(id), MaxIDBytes, "bytes")
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if letter || i > 0 && strings.IndexByte("._-:@+~", c) >= 0 {
			continue
		}
		if i == 0 {
			return invalid("id", "%q must begin with a letter or a digit", string(id))
		}
		return invalid("id", "%q has %q at byte %d; letters, digits and . _ - : @ + ~ are allowed", string(id), c, i)
	}
	return nil
}

// CheckBatch tells whether a batch is one that a store accepts, whatever the
// session's content.
func CheckBatch(b *Batch) error {
	if len(b.Events) == 0 && b.Patch == nil {
		return invalid("batch", "it has neither events nor a patch")
	}
	if len(b.Events) > MaxBatchEvents {
		return tooLarge("batch", len(b.Events), MaxBatchEvents, "events")
	}
	if err := checkText("key", b.Key, MaxKeyBytes); err != nil {
		return err
	}
	if err := checkText("turn", string(b.Turn), MaxNameBytes); err != nil {
		return err
	}
	total := 0
	for i := range b.Events {
		if err := checkEvent(&b.Events[i]); err != nil {
			var bad *InvalidError
			if errors.As(err, &bad) {
				bad.Field = fmt.Sprintf("events[%d].%s", i, bad.Field)
			}
			return err
		}
		e := &b.Events[i]
		total += len(e.Data)
	}
	if b.Patch != nil {
		if err := checkPatch(b.Patch); err != nil {
			return err
		}
	}
	if total > MaxBatchBytes {
		return tooLarge("batch", total, MaxBatchBytes, "bytes")
	}
	return nil
}

func checkEvent(e *Event) error {
	switch {
	case e.Seq != 0:
		return invalid("seq", "the store sets it")
	case !e.Time.IsZero():
		return invalid("time", "the store sets it")
	case e.Turn != "":
		return invalid("turn", "the store sets it; the turn of a batch is Batch.Turn")
	case e.Patch != nil:
		return invalid("patch", "the patch of a batch is Batch.Patch")
	}
	if e.Kind == KindTurn {
		return invalid("kind", "%q is the store's own: acquire and release the turn instead", KindTurn)
	}
	if err := checkText("kind", e.Kind, MaxNameBytes); err != nil {
		return err
	}
	if err := checkText("role", e.Role, MaxNameBytes); err != nil {
		return err
	}
	if err := checkText("author", e.Author, MaxNameBytes); err != nil {
		return err
	}
	if len(e.Data) > MaxBatchBytes {
		return tooLarge("data", len(e.Data), MaxBatchBytes, "bytes")
	}
	return checkJSON("data", e.Data)
}

// CheckMeta tells whether a session may be created with this metadata.
func CheckMeta(m *Meta) error {
	if err := checkText("title", m.Title, MaxTitleBytes); err != nil {
		return err
	}
	if err := checkLabelCount(m.Labels); err != nil {
		return err
	}
	for k, v := range m.Labels {
		if err := checkLabel(k, v); err != nil {
			return err
		}
	}
	return checkState(m.State)
}

func checkPatch(p *Patch) error {
	if p.Title != nil {
		if err := checkText("title", *p.Title, MaxTitleBytes); err != nil {
			return err
		}
	}
	if len(p.Labels) > MaxLabels {
		return tooLarge("labels", len(p.Labels), MaxLabels, "labels")
	}
	for k, v := range p.Labels {
		value := ""
		if v != nil {
			value = *v
		}
		if err := checkLabel(k, value); err != nil {
			return err
		}
	}
	return checkState(p.State)
}

func checkLabelCount(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return tooLarge("labels", len(labels), MaxLabels, "labels")
	}
	return nil
}

func checkLabel(name, value string) error {
	if name == "" {
		return invalid("labels", "a label has no name")
	}
	if strings.ContainsRune(name, '=') {
		return invalid("labels", "label name %q contains an equals sign", name)
	}
	if err := checkText("labels", name, MaxLabelBytes); err != nil {
		return err
	}
	return checkText("labels["+name+"]", value, MaxLabelBytes)
}

func checkState(state json.RawMessage) error {
	if len(state) == 0 {
		return nil
	}
	if len(state) > MaxStateBytes {
		return tooLarge("state", len(state), MaxStateBytes, "bytes")
	}
	if err := checkJSON("state", state); err != nil {
		return err
	}
	if n := depth(state); n > MaxStateDepth {
		return tooLarge("state", n, MaxStateDepth, "levels")
	}
	return nil
}

// depth is how deep the objects and arrays of valid JSON are nested.
func depth(data []byte) (deepest int) {
	n, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			i++
		case inString:
		case c == '{' || c == '[':
			n++
			deepest = max(deepest, n)
		case c == '}' || c == ']':
			n--
		}
	}
	return deepest
}

func checkText(field, s string, limit int) error {
	if len(s) > limit {
		return tooLarge(field, len(s), limit, "bytes")
	}
	if !utf8.ValidString(s) {
		return invalid(field, "it is not valid UTF-8")
	}
	if i := strings.IndexByte(s, 0); i >= 0 {
		return invalid(field, "it has a NUL byte at %d", i)
	}
	return nil
}

func checkJSON(field string, data []byte) error {
	if len(data) == 0 {
		return invalid(field, "it is empty; the JSON value for nothing is null")
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return invalid(field, "it begins with a byte order mark, which JSON does not allow")
	}
	if !utf8.Valid(data) {
		return invalid(field, "it is not valid UTF-8 (at byte %d)", firstInvalidUTF8(data))
	}
	if plainString(data) || json.Valid(data) {
		return nil
	}
	// json.Valid is quick and says nothing; Unmarshal says where.
	var v json.RawMessage
	err := json.Unmarshal(data, &v)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return invalid(field, "it is not JSON: %v (at byte %d)", err, syntax.Offset)
	}
	return invalid(field, "it is not JSON: %v", err)
}

// plainString tells whether data is a JSON string without escapes, the most
// common data there is; json.Valid takes ten times as long to say so.
func plainString(data []byte) bool {
	n := len(data)
	if n < 2 || data[0] != '"' || data[n-1] != '"' {
		return false
	}
	text := data[1 : n-1]
	for ; len(text) >= 8; text = text[8:] {
		if anySpecial(binary.LittleEndian.Uint64(text)) {
			return false
		}
	}
	for _, c := range text {
		if c < 0x20 || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// anySpecial tells whether one of eight bytes is a control character, a quote or a
// backslash: a subtraction borrows from the top bit of a byte that is too small.
func anySpecial(eight uint64) bool {
	const each, top = 0x0101010101010101, 0x8080808080808080
	quote, backslash := eight^('"'*each), eight^('\\'*each)
	return ((eight-' '*each)&^eight|(quote-each)&^quote|(backslash-each)&^backslash)&top != 0
}

func firstInvalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

// Normalize returns the events a checked batch stores: kinds filled in, and a
// batch of only a patch made one event of kind "meta". The patch is on the last
// event. Engines call it, so that all of them store the same.
func Normalize(b *Batch) []Event {
	events := make([]Event, len(b.Events), max(1, len(b.Events)))
	copy(events, b.Events)
	for i := range events {
		if events[i].Kind == "" {
			events[i].Kind = KindMessage
		}
	}
	if len(events) == 0 {
		events = append(events, Event{Kind: KindMeta, Data: json.RawMessage("null")})
	}
	events[len(events)-1].Patch = b.Patch
	return events
}

// ContentHash identifies what a batch stores. Two batches with the same key are
// the same when their hashes are; conditions do not count.
func ContentHash(events []Event) string {
	h := sha256.New()
	field := func(s []byte) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write(s)
	}
	for i := range events {
		e := &events[i]
		field([]byte(e.Kind))
		field([]byte(e.Role))
		field([]byte(e.Author))
		field(strconv.AppendBool(nil, e.Inbox))
		field(e.Data)
		if e.Patch != nil {
			patch, _ := json.Marshal(e.Patch) // strings, maps and checked JSON: can't fail
			field(patch)
		}
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

// Now is the time a store stamps on what it stores: UTC, to the microsecond, so
// that it is the same after any engine has written and read it.
func Now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
