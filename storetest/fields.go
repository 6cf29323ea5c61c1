package storetest

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
)

var fieldCases = []Case{
	{Name: "append/every field", run: appendEveryField,
		Defends: "every field of an event and of a patch that a caller may set is read back as it was given, by every handle and after opening again"},
}

// setByStore names the fields of an event that a caller must leave zero in a batch.
// A field belongs here only if [engine.CheckBatch] refuses it.
var setByStore = map[string]string{
	"Seq":   "assigned in the commit",
	"Time":  "assigned in the commit",
	"Turn":  "the grant of the batch, Batch.Turn",
	"Patch": "the patch of the batch, Batch.Patch, on its last event",
	"By":    "who wrote the batch, Batch.By",
	"Fork":  "Store.Fork, on an event of its own",

	"Redacted": "set by Redact, which takes the content away",
	"Redacts":  "set by Redact, on the event that records it",
}

// Full fills in every field of *v, which is a struct of the contract such as an
// event, a batch or a patch. No field is zero for n = 1, and every field differs
// between n = 1 and n = 2. Tests use it so that a field added later is tested from its
// first day.
func Full(v any, n int) { fill(reflect.ValueOf(v).Elem(), "", n) }

// Given is an event as a caller may put it into a batch: without the fields that the
// store sets.
func Given(e hansard.Event) hansard.Event {
	for name := range setByStore {
		reflect.ValueOf(&e).Elem().FieldByName(name).SetZero()
	}
	return e
}

// attachmentContent is the content of the attachment of an event that Full filled in.
func attachmentContent(n int) string { return fmt.Sprintf("the content of attachment %d", n) }

// AttachmentOf is the attachment of an event that Full filled in; [AttachFull] has to
// attach it before the event can be stored.
func AttachmentOf(n int) hansard.Attachment {
	a, err := engine.CopyAttachment(io.Discard, strings.NewReader(attachmentContent(n)), hansard.MaxAttachmentBytes)
	if err != nil {
		panic(err) // reading a string can't fail
	}
	return a
}

// AttachFull attaches to a session the attachment that an event filled in by Full names.
func AttachFull(t testing.TB, s hansard.Store, id hansard.SessionID, n int) {
	t.Helper()
	if a, err := s.Attach(t.Context(), id, strings.NewReader(attachmentContent(n))); err != nil || a != AttachmentOf(n) {
		t.Fatalf("attaching: %+v, %v", a, err)
	}
}

// PatchWith is a patch with a field, as a caller may send it: without the fields that
// can't be combined with it.
func PatchWith(p hansard.Patch, field string) *hansard.Patch {
	if field == "StateOps" {
		p.State = nil
	} else {
		p.StateOps = nil
	}
	return &p
}

// fill sets v, a field of this name, to a value made of the name and n.
func fill(v reflect.Value, name string, n int) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, n, 4, 5, 6000, time.UTC)))
		return
	case json.RawMessage:
		v.SetBytes(fmt.Appendf(nil, `{"%s":%d}`, name, n))
		return
	case hansard.Attachment:
		a := AttachmentOf(n)
		a.MediaType, a.Name = fmt.Sprintf("text/x-%d", n), fmt.Sprintf("name-%d", n)
		v.Set(reflect.ValueOf(a))
		return
	case hansard.StateOp: // one that can be applied to any state
		v.Set(reflect.ValueOf(hansard.StateOp{Op: hansard.OpAdd, Value: fmt.Appendf(nil, `{"%s":%d}`, name, n)}))
		return
	case hansard.Grant:
		v.SetString(string(engine.NextGrant("", uint64(n))))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("%s-%d", strings.ToLower(name), n))
	case reflect.Bool:
		v.SetBool(n%2 == 1)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(n))
	case reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), name, n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, name, n)
		fill(value, name, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), v.Type().Field(i).Name, n)
		}
	default:
		panic(fmt.Sprintf("storetest: field %s is a %v: teach storetest.Full to make one", name, v.Type()))
	}
}

func appendEveryField(x *env) {
	var full hansard.Event
	Full(&full, 1)
	given, patches := Given(full), map[hansard.SessionID]*hansard.Patch{}
	for i := range reflect.TypeFor[hansard.Patch]().NumField() {
		field := reflect.TypeFor[hansard.Patch]().Field(i).Name
		id := hansard.SessionID(field)
		x.create(id)
		AttachFull(x, x.store, id, 1)
		patches[id] = PatchWith(*full.Patch, field)
		x.append(id, hansard.Batch{Events: []hansard.Event{given}, Patch: patches[id]})
	}
	check := func(where string, s hansard.Store) {
		for id, patch := range patches {
			want := given
			want.Patch = patch
			checkEveryField(x, where, s, id, want)
		}
	}
	for i, s := range x.handles(2) {
		check(fmt.Sprintf("through handle %d", i+1), s)
	}
	x.reopen()
	check("after opening again", x.store)
}

// checkEveryField compares the only event of a session with the one that was appended.
func checkEveryField(x *env, where string, s hansard.Store, id hansard.SessionID, want hansard.Event) {
	x.Helper()
	events, err := readRange(x.ctx, s, id, hansard.Range{})
	if err != nil || len(events) != 1 {
		x.Fatalf("%s: %d events, %v", where, len(events), err)
	}
	for _, name := range differentFields(events[0], want) {
		if setByStore[name] != "" && name != "Patch" {
			continue
		}
		x.Errorf("%s: Event.%s is not what was appended: the engine has to store and read it, or storetest/fields.go to say that the store sets it", where, name)
	}
	if events[0].Patch == nil {
		return
	}
	for _, name := range differentFields(*events[0].Patch, *want.Patch) {
		x.Errorf("%s: Patch.%s is not what was appended: the engine has to store and read it", where, name)
	}
}

// differentFields names the fields in which two structs of the contract differ, by the
// meaning of their JSON: an engine may spell a patch its own way. Another case tests that
// data keeps its bytes.
func differentFields[T any](a, b T) (names []string) {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		if !sameJSON([]byte(show(va.Field(i).Interface())), []byte(show(vb.Field(i).Interface()))) {
			names = append(names, va.Type().Field(i).Name)
		}
	}
	return names
}
