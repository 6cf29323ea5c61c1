package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"hansard"
)

// CheckBatch checks that a store may accept a batch, whatever the session contains.
func CheckBatch(b *hansard.Batch) error {
	if len(b.Events) == 0 && b.Patch == nil {
		return invalid("batch", "it has neither events nor a patch")
	}
	if len(b.Events) > hansard.MaxBatchEvents {
		return tooLarge("batch", len(b.Events), hansard.MaxBatchEvents, "events")
	}
	if err := checkText("key", b.Key, hansard.MaxKeyBytes); err != nil {
		return err
	}
	if err := checkApart(b); err != nil {
		return err
	}
	if err := checkText("turn", string(b.Turn), hansard.MaxNameBytes); err != nil {
		return err
	}
	if err := checkText("by", b.By, hansard.MaxNameBytes); err != nil {
		return err
	}
	total := 0
	for i := range b.Events {
		if err := checkEvent(&b.Events[i]); err != nil {
			var bad *hansard.InvalidError
			if errors.As(err, &bad) {
				bad.Field = fmt.Sprintf("events[%d].%s", i, bad.Field)
			}
			return err
		}
		e := &b.Events[i]
		total += len(e.Data) + attachmentBytes(e.Attachments)
	}
	if b.Patch != nil {
		if err := checkPatch(b.Patch); err != nil {
			return err
		}
	}
	if err := CheckMeta(&b.Meta); err != nil {
		return err
	}
	if err := checkNoReuse(&b.Meta); err != nil {
		return err
	}
	if total > hansard.MaxBatchBytes {
		return tooLarge("batch", total, hansard.MaxBatchBytes, "bytes")
	}
	return nil
}

// checkApart checks events that are to be batches of their own. A retry is recognised by
// their ids: a key would cover all of them, and a fork may have only some.
func checkApart(b *hansard.Batch) error {
	switch {
	case !b.Apart:
		return nil
	case b.Key != "":
		return invalid("apart", "a key is of one batch: it does not go with events that are stored apart")
	}
	for i := range b.Events {
		if b.Events[i].ID == "" {
			return invalid(fmt.Sprintf("events[%d].id", i), "an event that is stored apart needs one")
		}
	}
	return nil
}

func checkEvent(e *hansard.Event) error {
	switch {
	case e.Seq != 0:
		return invalid("seq", "the store sets it")
	case !e.Time.IsZero():
		return invalid("time", "the store sets it")
	case e.Turn != "":
		return invalid("turn", "the store sets it; the turn of a batch is Batch.Turn")
	case e.By != "":
		return invalid("by", "the server sets it")
	case e.Patch != nil:
		return invalid("patch", "the patch of a batch is Batch.Patch")
	case e.Fork != nil:
		return invalid("fork", "the store sets it; fork the session instead")
	case e.Redacted:
		return invalid("redacted", "the store sets it")
	case len(e.Redacts) > 0:
		return invalid("redacts", "the store sets it: redact the events instead")
	}
	if e.Kind == hansard.KindTurn {
		return invalid("kind", "%q is the store's own: acquire and release the turn instead", hansard.KindTurn)
	}
	if err := checkText("kind", e.Kind, hansard.MaxNameBytes); err != nil {
		return err
	}
	if err := checkText("role", e.Role, hansard.MaxNameBytes); err != nil {
		return err
	}
	if err := checkText("author", e.Author, hansard.MaxNameBytes); err != nil {
		return err
	}
	if err := checkEventID("id", e.ID); err != nil {
		return err
	}
	if err := checkTime("at", e.At); err != nil {
		return err
	}
	if err := checkAttachments(e.Attachments); err != nil {
		return err
	}
	if len(e.Data) > hansard.MaxBatchBytes {
		return tooLarge("data", len(e.Data), hansard.MaxBatchBytes, "bytes")
	}
	return checkJSON("data", e.Data)
}

// checkTime checks that a time can be stored, which is in UTC: a log with a year of five
// digits can't be read again.
func checkTime(field string, t time.Time) error {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return invalid(field, "the year %d can't be written as JSON", y)
	}
	return nil
}

// CheckMeta checks that a session may be created with this metadata.
func CheckMeta(m *hansard.Meta) error {
	if err := checkText("title", m.Title, hansard.MaxTitleBytes); err != nil {
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

// checkNoReuse refuses what only Create can do.
func checkNoReuse(m *hansard.Meta) error {
	if m.Reuse {
		return invalid("meta.reuse", "only Create may use a deleted id again")
	}
	return nil
}

func checkPatch(p *hansard.Patch) error {
	if p.Title != nil {
		if err := checkText("title", *p.Title, hansard.MaxTitleBytes); err != nil {
			return err
		}
	}
	if len(p.Labels) > hansard.MaxLabels {
		return tooLarge("labels", len(p.Labels), hansard.MaxLabels, "labels")
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
	if err := checkState(p.State); err != nil {
		return err
	}
	return checkStateOps(p)
}

func checkLabelCount(labels map[string]string) error {
	if len(labels) > hansard.MaxLabels {
		return tooLarge("labels", len(labels), hansard.MaxLabels, "labels")
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
	if err := checkText("labels", name, hansard.MaxLabelBytes); err != nil {
		return err
	}
	return checkText("labels["+name+"]", value, hansard.MaxLabelBytes)
}

func checkState(state json.RawMessage) error {
	if len(state) == 0 {
		return nil
	}
	if len(state) > hansard.MaxStateBytes {
		return tooLarge("state", len(state), hansard.MaxStateBytes, "bytes")
	}
	if err := checkJSON("state", state); err != nil {
		return err
	}
	if n := depth(state); n > hansard.MaxStateDepth {
		return tooLarge("state", n, hansard.MaxStateDepth, "levels")
	}
	return nil
}

func checkAttachments(list []hansard.Attachment) error {
	if len(list) > hansard.MaxAttachments {
		return tooLarge("attachments", len(list), hansard.MaxAttachments, "attachments")
	}
	for i, a := range list {
		field := fmt.Sprintf("attachments[%d].", i)
		if err := hansard.CheckDigest(a.Digest); err != nil {
			return invalid(field+"digest", "%s", reason(err))
		}
		if a.Size < 0 || a.Size > hansard.MaxAttachmentBytes {
			return invalid(field+"size", "%d is not the size of an attachment", a.Size)
		}
		for name, text := range map[string]string{"media_type": a.MediaType, "name": a.Name} {
			if err := checkText(field+name, text, hansard.MaxNameBytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// attachmentBytes is roughly how many bytes naming attachments adds to an event.
func attachmentBytes(list []hansard.Attachment) (n int) {
	for _, a := range list {
		n += 128 + len(a.MediaType) + len(a.Name)
	}
	return n
}

func reason(err error) string {
	var bad *hansard.InvalidError
	if errors.As(err, &bad) {
		return bad.Reason
	}
	return err.Error()
}

// checkEventID checks an event's id, which may be empty.
func checkEventID(field, id string) error {
	if len(id) <= hansard.MaxEventID && isPlain(id) {
		return nil // as nearly all are
	}
	if err := checkText(field, id, hansard.MaxEventID); err != nil {
		return err
	}
	for i, r := range id {
		if unicode.IsControl(r) {
			return invalid(field, "it has the control character %q at byte %d", r, i)
		}
	}
	return nil
}

// isPlain reports whether a text has only printable ASCII.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
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
