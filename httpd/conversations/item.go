package conversations

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"hansard"
)

// kindDeleted is the kind of the event that hides an item: a log is only ever
// appended to. Its data is a tombstone.
const kindDeleted = "item_deleted"

// tombstone names the deleted item. Only the seq counts; the id is for people, and the
// key distinguishes a retry from another caller's deletion.
type tombstone struct {
	Seq hansard.Seq `json:"seq"`
	ID  string      `json:"id,omitempty"`
	Key string      `json:"key,omitempty"`
}

// reserved are the kinds that have another meaning to a store: no item has one of them.
var reserved = []string{kindDeleted, hansard.KindTurn, hansard.KindMeta, hansard.KindSummary}

const typeMessage = "message"

// kindOf is the kind of the event that stores an item of a type. Types that are not
// messages, tool calls or their results are kinds of their own, so that types that the
// API adds later are stored, too.
func kindOf(typ string) string {
	switch {
	case typ == typeMessage:
		return hansard.KindMessage
	case strings.HasSuffix(typ, "_call"):
		return hansard.KindToolCall
	case strings.HasSuffix(typ, "_output"):
		return hansard.KindToolResult
	}
	return typ
}

// shape is an item, from a request or from an event.
type shape struct {
	typ   string
	role  string
	kind  string
	given string // the id the item itself has, or empty
	obj   *object
	// text is the JSON string of a message that is only text and was written by
	// other means than this API; obj is nil then.
	text json.RawMessage
}

// shapeOf reports whether an event is an item: its data looks like one, and its kind is
// the one that such an item has. It does not matter who wrote it, so that items imported
// or appended by other means are items, too.
func shapeOf(e *hansard.Event) (*shape, bool) {
	if slices.Contains(reserved, e.Kind) {
		return nil, false
	}
	data := trim(e.Data)
	if len(data) > 0 && data[0] == '"' {
		return textShape(e, data)
	}
	o, ok := objectOf(data)
	if !ok {
		return nil, false
	}
	if text := o.value("text"); e.Kind == hansard.KindMessage && !o.given("type") && !o.given("content") {
		return textShape(e, text)
	}
	s, problem := shapeOfObject(o)
	if problem != nil || s.kind != e.Kind {
		return nil, false
	}
	return s, true
}

// textShape is a message that was written as plain text.
func textShape(e *hansard.Event, text json.RawMessage) (*shape, bool) {
	if len(text) == 0 || text[0] != '"' || e.Kind != hansard.KindMessage {
		return nil, false
	}
	// SDKs fail on roles they do not know, so only these four are used.
	role := "user"
	switch e.Role {
	case "assistant", "agent", "model", "ai":
		role = "assistant"
	case "system", "developer":
		role = e.Role
	}
	return &shape{typ: typeMessage, role: role, kind: hansard.KindMessage, text: text}, true
}

// maxItemIDBytes bounds the ids that clients give. OpenAI's are short; those of other
// services used through its SDKs may not be.
const maxItemIDBytes = 1024

// itemRoles are the roles the API knows.
var itemRoles = []string{"user", "assistant", "system", "developer", "tool", "critic", "discriminator", "unknown"}

// shapeOfObject checks an object as an item. The error's param is the member,
// relative to the item.
func shapeOfObject(o *object) (*shape, *apiError) {
	s := &shape{obj: o, typ: typeMessage}
	if o.given("type") {
		typ, ok := o.text("type")
		if !ok {
			return nil, wrongType("type", "a string", o.value("type"))
		}
		if !plainName(typ) || slices.Contains(reserved, kindOf(typ)) || typ == "item_reference" {
			return nil, badRequest("type", "invalid_value", "Invalid value: '%.64s' is not the type of an item that can be stored.", typ)
		}
		s.typ = typ
	}
	s.kind = kindOf(s.typ)
	if o.given("id") {
		id, ok := o.text("id")
		if !ok {
			return nil, wrongType("id", "a string", o.value("id"))
		}
		if err := checkItemID(id); err != nil {
			return nil, badRequest("id", "invalid_value", "Invalid 'id': %v.", err)
		}
		s.given = id
	}
	for _, name := range required[s.typ] {
		if !o.given(name) {
			return nil, badRequest(name, "missing_required_parameter", "Missing required parameter: '%s'.", name)
		}
	}
	switch s.kind {
	case hansard.KindMessage:
		return s, s.checkMessage()
	case hansard.KindToolResult:
		s.role = "tool"
	default:
		s.role = "assistant"
	}
	return s, nil
}

// required are the members that items of the most common types need. All other types are
// stored as they are: the store does not interpret them.
var required = map[string][]string{
	typeMessage:            {"role", "content"},
	"function_call":        {"call_id", "name", "arguments"},
	"function_call_output": {"call_id", "output"},
}

func (s *shape) checkMessage() *apiError {
	role, ok := s.obj.text("role")
	if !ok {
		return wrongType("role", "a string", s.obj.value("role"))
	}
	if !slices.Contains(itemRoles, role) {
		return badRequest("role", "invalid_value", "Invalid value: '%.64s'. Supported values are: '%s'.", role, strings.Join(itemRoles, "', '"))
	}
	s.role = role
	content := s.obj.value("content")
	if content[0] == '"' {
		return nil
	}
	if !isArray(content) {
		return wrongType("content", "a string or an array", content)
	}
	i := 0
	var problem *apiError
	eachElement(content, func(part json.RawMessage) bool {
		if p, ok := objectOf(part); !ok {
			problem = wrongType(fmt.Sprintf("content[%d]", i), "an object", part)
		} else if _, ok := p.text("type"); !ok {
			name := fmt.Sprintf("content[%d].type", i)
			problem = badRequest(name, "missing_required_parameter", "Missing required parameter: '%s'.", name)
		}
		i++
		return problem == nil
	})
	return problem
}

func wrongType(param, want string, got json.RawMessage) *apiError {
	return badRequest(param, "invalid_type", "Invalid type for '%s': expected %s, but got %s instead.", param, want, typeName(got))
}

func plainName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for _, c := range s {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_-.:", c)) {
			return false
		}
	}
	return true
}

func checkItemID(id string) error {
	switch {
	case id == "":
		return errors.New("it is empty")
	case len(id) > maxItemIDBytes:
		return fmt.Errorf("it is longer than %d bytes", maxItemIDBytes)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl):
		return errors.New("it has characters that can't be printed")
	}
	return nil
}

// event is the event that stores an item from a client: its data is the item, unchanged.
func (s *shape) event(inbox bool) hansard.Event {
	return hansard.Event{Kind: s.kind, Role: s.role, Inbox: inbox, Data: s.obj.raw}
}

// item is an item as the API returns it.
type item struct {
	seq  hansard.Seq
	id   string
	body []byte
}

// at is the item of a shape at a seq of a conversation: the given bytes, preceded by the
// members that the API promises and the client left out.
func (s *shape) at(id hansard.SessionID, seq hansard.Seq) item {
	it := item{seq: seq, id: s.given}
	if it.id == "" {
		it.id = makeItemID(id, s.typ, seq)
	}
	o := s.obj
	if o == nil {
		o = &object{raw: json.RawMessage(`{}`)}
	}
	var set []member
	add := func(name string, value []byte) { set = append(set, member{name, value}) }
	if s.given == "" {
		add("id", quote(it.id))
	}
	if !o.given("type") {
		add("type", quote(s.typ))
	}
	switch s.kind {
	case hansard.KindMessage, hansard.KindToolCall, hansard.KindToolResult:
		if !o.given("status") {
			add("status", quote("completed"))
		}
	}
	if s.obj == nil {
		add("role", quote(s.role))
	}
	if text := s.plainText(); text != nil {
		add("content", contentOf(s.role, text))
	}
	it.body = o.raw
	if len(set) > 0 {
		it.body = o.with(set)
	}
	return it
}

// plainText is the content of a message that is given as a string, which the API accepts
// but never returns.
func (s *shape) plainText() json.RawMessage {
	if s.obj == nil {
		return s.text
	}
	if content := s.obj.value("content"); s.kind == hansard.KindMessage && content[0] == '"' {
		return content
	}
	return nil
}

// contentOf is a text as the list of content that the API returns. The bytes of the
// string stay the same.
func contentOf(role string, text json.RawMessage) []byte {
	if role == "assistant" {
		return fmt.Appendf(nil, `[{"type":"output_text","text":%s,"annotations":[],"logprobs":[]}]`, text)
	}
	return fmt.Appendf(nil, `[{"type":"input_text","text":%s}]`, text)
}

// prefixes are the prefixes of ids that people know from the API.
var prefixes = map[string]string{
	typeMessage:             "msg",
	"reasoning":             "rs",
	"function_call":         "fc",
	"function_call_output":  "fco",
	"custom_tool_call":      "ctc",
	"web_search_call":       "ws",
	"file_search_call":      "fs",
	"image_generation_call": "ig",
	"code_interpreter_call": "ci",
	"computer_call":         "cu",
	"mcp_call":              "mcp",
}

// makeItemID is the id of an item that has none of its own. It is not stored, but derived
// from the seq, so that the item is found by it without a search. It also contains a hash
// of the conversation's id, so that an item copied with its id to another conversation
// can't be taken for one of its own.
//
//	msg_ 6c1f3a90be27d405 000000000000002a
//	     conversation     seq
func makeItemID(id hansard.SessionID, typ string, seq hansard.Seq) string {
	prefix, ok := prefixes[typ]
	if !ok {
		prefix = "item"
	}
	return fmt.Sprintf("%s_%s%016x", prefix, conversationMark(id), uint64(seq))
}

func conversationMark(id hansard.SessionID) string {
	sum := sha256.Sum256([]byte("conversation " + id))
	return hex.EncodeToString(sum[:8])
}

// parseItemID finds the seq in an id that makeItemID may have made for this conversation.
// Only the event at that seq can tell whether it did.
func parseItemID(id hansard.SessionID, itemID string) (hansard.Seq, bool) {
	_, rest, ok := strings.Cut(itemID, "_")
	if !ok || len(rest) != 32 || rest[:16] != conversationMark(id) || rest != strings.ToLower(rest) {
		return 0, false
	}
	seq, err := strconv.ParseUint(rest[16:], 16, 63)
	return hansard.Seq(seq), err == nil && seq > 0
}
