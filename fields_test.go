package hansard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
	"hansard/memstore"
	"hansard/storetest"
)

// A field added to an event, a batch or a patch has to be added in several places, and the
// compiler does not ask for it. These tests do: each looks at every field. A field that is
// deliberately left out of a place is excused there, with the reason; an excuse that is no longer
// true fails too.
//
// What the engines do with a field (storing, reading, copying) is tested by storetest,
// "append/every field" and RunCopy, on every engine and through the wire.

// excuses says why a field, "Event.Seq", takes no part in something.
type excuses map[string]string

// check goes through the fields of T. takesPart gets a struct with every field set
// and one that differs from it in one field only.
func check[T any](t *testing.T, what, where string, excused excuses, takesPart func(t *testing.T, full, changed T, field string) bool) {
	t.Helper()
	var full, other T
	storetest.Full(&full, 1)
	storetest.Full(&other, 2)
	for i := range reflect.TypeFor[T]().NumField() {
		field := reflect.TypeFor[T]().Field(i).Name
		name := reflect.TypeFor[T]().Name() + "." + field
		changed := full
		reflect.ValueOf(&changed).Elem().Field(i).Set(reflect.ValueOf(other).Field(i))
		takes := takesPart(t, full, changed, field)
		switch reason, ok := excused[name]; {
		case !takes && !ok:
			t.Errorf("%s takes no part in %s.\nAdd it in %s.\n"+
				"If it must not take part, excuse it in fields_test.go and say why; if callers must leave it to the store, add it to setByStore in storetest/fields.go.", name, what, where)
		case takes && ok:
			t.Errorf("%s takes part in %s, but fields_test.go excuses it (%s): remove the excuse.", name, what, reason)
		}
	}
}

const setLater = "the store sets it, after the content was hashed: a retry does not know it"

var notHashed = excuses{
	"Event.Seq":  setLater,
	"Event.Time": setLater,
	"Event.Turn": "under which turn a batch is written is a condition; a retry may come under another",
	"Event.Fork": setLater,
	"Event.By":   "who sends it: a retry may come through another server, or after a token was replaced",
	"Batch.By":   "see Event.By",

	"Event.Redacted": "of what was taken away there is nothing to hash",
	"Event.Redacts":  "the store sets it, on an event that has no key",

	"Batch.Expect": "a condition: a retry is answered although the session has moved on",
	"Batch.Turn":   "a condition, see Event.Turn",
	"Batch.Key":    "the hash is what the key is compared by",
	"Batch.Create": "a condition",
	"Batch.Apart":  "it goes with no key, so that nothing is compared by the hash",
	"Batch.Meta":   "it counts only for the append that creates: a retry finds the session created",
}

// TestEveryFieldIsHashed: two batches with one key are the same only if everything they store is.
// A field that is not hashed makes a changed batch look like a retry, and the change is never
// stored.
func TestEveryFieldIsHashed(t *testing.T) {
	const where = "ContentHash, engine/batch.go"
	differ := func(a, b hansard.Event) bool {
		return engine.ContentHash([]hansard.Event{a}) != engine.ContentHash([]hansard.Event{b})
	}
	check(t, "the hash of a batch's content", where, notHashed, func(_ *testing.T, full, changed hansard.Event, _ string) bool {
		return differ(full, changed)
	})
	check(t, "the hash of a batch's content", "Normalize and "+where, notHashed, func(_ *testing.T, full, changed hansard.Batch, _ string) bool {
		return engine.ContentHash(engine.Normalize(&full)) != engine.ContentHash(engine.Normalize(&changed))
	})
	check(t, "the hash of a batch's content", where, notHashed, func(_ *testing.T, full, changed hansard.Patch, _ string) bool {
		return differ(hansard.Event{Patch: &full}, hansard.Event{Patch: &changed})
	})
}

// TestEveryFieldIsCompared: Copy uses SameEvent to tell whether a copy is faithful. (Batches are
// compared by their hashes.)
func TestEveryFieldIsCompared(t *testing.T) {
	check(t, "comparing events", "SameEvent, copy.go", nil, func(_ *testing.T, full, changed hansard.Event, _ string) bool {
		return !hansard.SameEvent(&full, &changed)
	})
	check(t, "comparing events", "samePatch, copy.go", nil, func(_ *testing.T, full, changed hansard.Patch, _ string) bool {
		return !hansard.SameEvent(&hansard.Event{Patch: &full}, &hansard.Event{Patch: &changed})
	})
}

// TestEveryFieldTravels: a value written for the wire and read back is unchanged.
func TestEveryFieldTravels(t *testing.T) {
	spellings := map[string]func(e *hansard.Event) (hansard.Event, error){
		"AppendEvent":     func(e *hansard.Event) (hansard.Event, error) { return wire.ParseEvent(wire.AppendEvent(nil, e)) },
		"AppendLine":      func(e *hansard.Event) (hansard.Event, error) { return wire.ParseEvent(wire.AppendLine(nil, e)) },
		"AppendExactLine": func(e *hansard.Event) (hansard.Event, error) { return wire.ParseEvent(wire.AppendExactLine(nil, e)) },
		"AppendPart": func(e *hansard.Event) (hansard.Event, error) {
			p, err := wire.ParsePart(wire.AppendPart(nil, &hansard.Part{Events: []hansard.Event{*e}}))
			return only(p.Events, err)
		},
		"encoding/json": func(e *hansard.Event) (back hansard.Event, err error) {
			return back, json.Unmarshal(wire.Marshal(e), &back)
		},
	}
	for name, through := range spellings {
		where := name + " and its counterpart in internal/wire (and openapi.json)"
		what := "the wire form of " + name
		check(t, what, where, nil, func(t *testing.T, full, _ hansard.Event, field string) bool {
			back, err := through(&full)
			return err == nil && same(t, back, full, field)
		})
		check(t, what, where, nil, func(t *testing.T, full, _ hansard.Patch, field string) bool {
			back, err := through(&hansard.Event{Patch: &full})
			return err == nil && back.Patch != nil && same(t, *back.Patch, full, field)
		})
	}
	const where = "AppendBatch and ParseBatch in internal/wire (and openapi.json)"
	send := func(b hansard.Batch) (hansard.Batch, error) { return wire.ParseBatch(wire.AppendBatch(nil, &b)) }
	notSent := excuses{"Batch.By": "the server sets it from the token; a client can't"}
	check(t, "the wire form of a batch", where, notSent, func(t *testing.T, full, _ hansard.Batch, field string) bool {
		full.Events = []hansard.Event{storetest.Given(full.Events[0])}
		back, err := send(full)
		return err == nil && same(t, back, full, field)
	})
	check(t, "the wire form of a batch", where, nil, func(t *testing.T, full, _ hansard.Patch, field string) bool {
		back, err := send(hansard.Batch{Patch: &full})
		return err == nil && back.Patch != nil && same(t, *back.Patch, full, field)
	})
	check(t, "the wire form of an event that is sent to be stored", where, nil, func(t *testing.T, full, _ hansard.Event, field string) bool {
		given := storetest.Given(full)
		if reflect.ValueOf(given).FieldByName(field).IsZero() {
			return true // the store sets it: the caller may not send it
		}
		back, err := send(hansard.Batch{Events: []hansard.Event{given}})
		e, err := only(back.Events, err)
		return err == nil && same(t, e, given, field)
	})
}

// TestEveryFieldIsCopied: hansard.Copy carries every field, and so does the copy that an engine
// makes so that its caller's memory stays the caller's. memstore stands for the engines here;
// storetest.RunCopy does the same on each of them.
func TestEveryFieldIsCopied(t *testing.T) {
	ctx := t.Context()
	src, dst := memstore.New(), memstore.New()
	defer src.Close()
	defer dst.Close()
	var full hansard.Event
	storetest.Full(&full, 1)
	if _, err := src.Create(ctx, "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	storetest.AttachFull(t, src, "s", 1)
	turn, err := src.Acquire(ctx, "s", hansard.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	// State and StateOps can't be in one patch: the second event has the patch with StateOps.
	b := hansard.Batch{Events: []hansard.Event{storetest.Given(full)}, Patch: storetest.PatchWith(*full.Patch, "State"), Turn: turn.Grant, By: full.By}
	if _, err := src.Append(ctx, "s", b); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Append(ctx, "s", hansard.Batch{Patch: storetest.PatchWith(*full.Patch, "StateOps"), Turn: turn.Grant}); err != nil {
		t.Fatal(err)
	}
	for c, err := range hansard.Copy(ctx, src, dst) {
		if err := errors.Join(err, c.Err); err != nil {
			t.Fatal(err)
		}
	}
	was, is := storetest.ReadAll(t, src, "s")[1], storetest.ReadAll(t, dst, "s")[1]
	const where = "cloneEvent and Import of the engines"
	notSet := excuses{"Event.Fork": "only the first event that a fork has of its own has it: storetest.RunCopy copies some",
		"Event.Redacted": "only Redact sets it; storetest.RunCopy copies such events", "Event.Redacts": "see Event.Redacted"}
	check(t, "copying a session", where, notSet, func(t *testing.T, _, _ hansard.Event, field string) bool {
		return !reflect.ValueOf(was).FieldByName(field).IsZero() && same(t, is, was, field)
	})
	wasOps, isOps := storetest.ReadAll(t, src, "s")[2], storetest.ReadAll(t, dst, "s")[2]
	check(t, "copying a session", where, nil, func(t *testing.T, _, _ hansard.Patch, field string) bool {
		was, is := was, is
		if field == "StateOps" {
			was, is = wasOps, isOps
		}
		return !reflect.ValueOf(*was.Patch).FieldByName(field).IsZero() && same(t, *is.Patch, *was.Patch, field)
	})
}

// TestEveryFieldIsChecked: bytes that are not UTF-8 are refused wherever they are. Fields that
// hold no bytes have nothing to check here.
func TestEveryFieldIsChecked(t *testing.T) {
	const where = "CheckBatch, engine/check.go"
	refused := func(b hansard.Batch) bool { return errors.Is(engine.CheckBatch(&b), hansard.ErrInvalid) }
	check(t, "the check of a batch", where, nil, func(_ *testing.T, full, _ hansard.Batch, field string) bool {
		full.Events = []hansard.Event{storetest.Given(full.Events[0])}
		full.Patch = storetest.PatchWith(*full.Patch, "State")
		full.Meta.Reuse = false // only for Create
		if field != "Apart" {
			full.Apart = false // can't be combined with a key
		} else {
			full.Key = ""
		}
		if refused(full) {
			t.Fatal("the batch is refused before anything is wrong with it")
		}
		if !poison(reflect.ValueOf(&full).Elem().FieldByName(field)) {
			return true
		}
		return refused(full)
	})
	check(t, "the check of a batch", where, nil, func(_ *testing.T, full, _ hansard.Event, field string) bool {
		e := storetest.Given(full)
		if !poison(reflect.ValueOf(&e).Elem().FieldByName(field)) {
			return true
		}
		return refused(hansard.Batch{Events: []hansard.Event{e}})
	})
	check(t, "the check of a batch", where, nil, func(_ *testing.T, full, _ hansard.Patch, field string) bool {
		p := storetest.PatchWith(full, field)
		if refused(hansard.Batch{Patch: p}) {
			t.Fatal("the patch is refused before anything is wrong with it")
		}
		if !poison(reflect.ValueOf(p).Elem().FieldByName(field)) {
			return true
		}
		return refused(hansard.Batch{Patch: p})
	})
}

// TestEveryFieldOfAPatchChangesSomething: a patch with only that field has an effect.
func TestEveryFieldOfAPatchChangesSomething(t *testing.T) {
	check(t, "the patch", "ApplyPatch, patch.go", nil, func(t *testing.T, full, _ hansard.Patch, field string) bool {
		var p hansard.Patch
		reflect.ValueOf(&p).Elem().FieldByName(field).Set(reflect.ValueOf(full).FieldByName(field))
		m, err := engine.ApplyPatch("s", hansard.Meta{}, &p)
		if err != nil {
			t.Fatalf("%s: %v", field, err)
		}
		return !reflect.DeepEqual(m, hansard.Meta{})
	})
}

// same compares one field of two structs by its JSON.
func same[T any](t *testing.T, a, b T, field string) bool {
	t.Helper()
	text := func(v T) string {
		out, err := json.Marshal(reflect.ValueOf(v).FieldByName(field).Interface())
		if err != nil {
			t.Fatalf("%s: %v", field, err)
		}
		return string(out)
	}
	return text(a) == text(b)
}

func only(events []hansard.Event, err error) (hansard.Event, error) {
	if err == nil && len(events) != 1 {
		err = fmt.Errorf("%d events", len(events))
	}
	if err != nil {
		return hansard.Event{}, err
	}
	return events[0], nil
}

// poison puts bytes that are not UTF-8 somewhere into v, and reports whether v can hold any.
func poison(v reflect.Value) bool {
	const bad = "\xff"
	switch v.Kind() {
	case reflect.String:
		v.SetString(bad)
		return true
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return poison(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(bad))
			return true
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return poison(v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		poisoned := poison(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("name").Convert(v.Type().Key()), value)
		return poisoned
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && poison(v.Field(i)) {
				return true
			}
		}
	}
	return false
}
