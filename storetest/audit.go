package storetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"hansard"
	"hansard/engine"
)

// ReadAll reads a whole session that must be readable.
func ReadAll(t testing.TB, s hansard.Store, id hansard.SessionID) []hansard.Event {
	t.Helper()
	events, err := readRange(t.Context(), s, id, hansard.Range{})
	if err != nil {
		t.Fatalf("Read(%q): %v", id, err)
	}
	return events
}

// readRange returns what a read yielded, and the error that ended it. An event that
// comes with an error, or anything after an error, breaks the contract.
func readRange(ctx context.Context, s hansard.Store, id hansard.SessionID, r hansard.Range) ([]hansard.Event, error) {
	var events []hansard.Event
	var failed error
	for e, err := range s.Read(ctx, id, r) {
		if failed != nil {
			return events, fmt.Errorf("the read continued after its error %w", failed)
		}
		if err != nil {
			failed = err
			continue
		}
		events = append(events, e)
	}
	return events, failed
}

func listAll(ctx context.Context, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
	var infos []hansard.Info
	var failed error
	for info, err := range s.List(ctx, q) {
		if failed != nil {
			return infos, fmt.Errorf("the list continued after its error %w", failed)
		}
		if err != nil {
			failed = err
			continue
		}
		infos = append(infos, info)
	}
	return infos, failed
}

// wantSound verifies a store that can be verified: nothing may be wrong with it.
func wantSound(ctx context.Context, t testing.TB, s hansard.Store) {
	t.Helper()
	c, ok := s.(hansard.Checker)
	if !ok {
		return
	}
	for f, err := range c.Verify(ctx, "") {
		if errors.Is(err, hansard.ErrUnsupported) {
			return // the store is remote, and can't be examined there
		}
		if err != nil || f.Level == hansard.LevelDamage {
			t.Errorf("Verify says %+v, %v", f, err)
		}
	}
}

// audit is the end of every case: all sessions are listed, agree with their
// logs, and are the same when the data is opened again.
func (x *env) audit() {
	x.Helper()
	before, err := snapshot(x.ctx, x.store)
	if errors.Is(err, hansard.ErrClosed) {
		return // the case closed the store
	}
	if err == nil && x.releaseAll(before) {
		before, err = snapshot(x.ctx, x.store)
	}
	if err != nil {
		x.Fatalf("audit: %v", err)
	}
	wantSound(x.ctx, x, x.store)
	if x.engine.Reopen == nil {
		return
	}
	for _, s := range x.others {
		if err := s.Close(); err != nil {
			x.Errorf("audit: Close of another handle: %v", err)
		}
	}
	x.reopen()
	after, err := snapshot(x.ctx, x.store)
	if err != nil {
		x.Fatalf("audit: after opening again: %v", err)
	}
	for id, was := range before {
		is, ok := after[id]
		if !ok {
			x.Errorf("audit: session %q is gone after opening again", id)
			continue
		}
		if diff := diffInfo(is.info, was.info); diff != "" {
			x.Errorf("audit: session %q after opening again: %s", id, diff)
		}
		if diff := diffEvents(is.events, was.events); diff != "" {
			x.Errorf("audit: session %q after opening again: %s", id, diff)
		}
	}
	for id := range after {
		if _, ok := before[id]; !ok {
			x.Errorf("audit: session %q came out of nowhere when opening again", id)
		}
	}
}

// releaseAll releases the turns that a case has left behind, and reports whether there
// were any: the engine decides what happens to them when their handle is closed.
func (x *env) releaseAll(sessions map[hansard.SessionID]session) (any bool) {
	x.Helper()
	for id, s := range sessions {
		if t := s.info.Turn; t != nil {
			x.release(x.store, id, t.Grant)
			any = true
		}
	}
	return any
}

type session struct {
	info   hansard.Info
	events []hansard.Event
}

// snapshot reads a store that nobody writes to, and checks that each session's
// description, its list entry and its log agree.
func snapshot(ctx context.Context, s hansard.Store) (map[hansard.SessionID]session, error) {
	infos, err := listAll(ctx, s, hansard.Query{})
	if err != nil {
		return nil, fmt.Errorf("List: %w", err)
	}
	out := make(map[hansard.SessionID]session, len(infos))
	for _, info := range infos {
		if _, twice := out[info.ID]; twice {
			return nil, fmt.Errorf("session %q is listed twice", info.ID)
		}
		stat, err := s.Stat(ctx, info.ID)
		if err != nil {
			return nil, fmt.Errorf("session %q is listed, but Stat: %w", info.ID, err)
		}
		if diff := diffInfo(info, stat); diff != "" {
			return nil, fmt.Errorf("session %q: List and Stat differ: %s", info.ID, diff)
		}
		events, err := readRange(ctx, s, info.ID, hansard.Range{})
		if err != nil {
			return nil, fmt.Errorf("session %q: Read: %w", info.ID, err)
		}
		if err := agree(info, events); err != nil {
			return nil, fmt.Errorf("session %q: %w", info.ID, err)
		}
		out[info.ID] = session{info, events}
	}
	return out, nil
}

// agree returns where a description and a log disagree.
func agree(info hansard.Info, events []hansard.Event) error {
	for i, e := range events {
		if e.Seq != hansard.Seq(i+1) {
			return fmt.Errorf("event %d has seq %d", i+1, e.Seq)
		}
	}
	updated := info.Created
	if n := len(events); n > 0 {
		updated = events[n-1].Time
	}
	var ids engine.IDs
	var lineage engine.Lineage
	for i := range events {
		if err := cmp.Or(ids.Next(&events[i]), lineage.Next(&events[i])); err != nil {
			return err
		}
	}
	if err := lineage.End(info.Parent); err != nil {
		return err
	}
	if err := checkRedactions(events); err != nil {
		return err
	}
	turn, err := checkGrants(events)
	if err != nil {
		return err
	}
	switch {
	case (info.Turn == nil) != (turn == nil):
		return fmt.Errorf("the description has the turn %+v, the log %+v", info.Turn, turn)
	case turn != nil && diffTurn(*info.Turn, *turn) != "":
		return fmt.Errorf("the turn is not what the log says: %s", diffTurn(*info.Turn, *turn))
	case info.LastSeq != hansard.Seq(len(events)):
		return fmt.Errorf("the description has the last seq %d, the log %d events", info.LastSeq, len(events))
	case !info.Updated.Equal(updated):
		return fmt.Errorf("the description was updated %v, the log says %v", info.Updated, updated)
	case info.Labels == nil:
		return errors.New("the labels are nil")
	case info.Damaged():
		return fmt.Errorf("it is described as damaged: %v", info.Damage)
	case !json.Valid(info.State):
		return fmt.Errorf("the state is not JSON: %q", info.State)
	case info.Bytes < 0:
		return fmt.Errorf("it has %d bytes", info.Bytes)
	}
	return nil
}

// checkGrants proves from a log alone that nobody ever wrote under a grant that
// was not the current one, and returns the turn that is held at its end. It also
// checks that the records are complete.
func checkGrants(events []hansard.Event) (*hansard.Turn, error) {
	var grants engine.Grants
	given := make(map[hansard.Grant]bool)
	for _, e := range events {
		was := grants.Current
		if err := grants.Next(&e); err != nil {
			return nil, err
		}
		if e.Kind != hansard.KindTurn {
			continue
		}
		r, err := recordOf(e)
		if err != nil {
			return nil, err
		}
		if !r.Grants() {
			continue
		}
		switch {
		case given[e.Turn]:
			return nil, fmt.Errorf("seq %d gives grant %s again", e.Seq, e.Turn)
		case (r.From == "") != (was == nil) || was != nil && r.From != was.Grant:
			return nil, fmt.Errorf("seq %d says it supersedes %q, and %+v was held", e.Seq, r.From, was)
		case (r.Change == hansard.TurnGranted) != (was == nil) || (r.Why == "") != (was == nil):
			return nil, fmt.Errorf("seq %d says the turn was %s (%q), and %+v was held", e.Seq, r.Change, r.Why, was)
		case (r.Change == hansard.TurnStolen) != (r.Reason != ""):
			return nil, fmt.Errorf("seq %d says the turn was %s for the reason %q", e.Seq, r.Change, r.Reason)
		}
		given[e.Turn] = true
	}
	return grants.Current, nil
}

// diffInfo returns the first difference between two descriptions, ignoring their size.
func diffInfo(got, want hansard.Info) string {
	if !got.Created.Equal(want.Created) || !got.Updated.Equal(want.Updated) {
		return fmt.Sprintf("created %v updated %v, want %v and %v", got.Created, got.Updated, want.Created, want.Updated)
	}
	return diffContent(got, want)
}

// diffContent is diffInfo without the times.
func diffContent(got, want hansard.Info) string {
	switch {
	case got.ID != want.ID:
		return fmt.Sprintf("id %q, want %q", got.ID, want.ID)
	case got.Title != want.Title:
		return fmt.Sprintf("title %q, want %q", got.Title, want.Title)
	case !maps.Equal(got.Labels, want.Labels):
		return fmt.Sprintf("labels %q, want %q", got.Labels, want.Labels)
	case !sameJSON(got.State, want.State):
		return fmt.Sprintf("state %.200s, want %.200s", got.State, want.State)
	case got.LastSeq != want.LastSeq:
		return fmt.Sprintf("last seq %d, want %d", got.LastSeq, want.LastSeq)
	case show(got.Parent) != show(want.Parent):
		return fmt.Sprintf("parent %s, want %s", show(got.Parent), show(want.Parent))
	case turnOf(got) != turnOf(want):
		return fmt.Sprintf("turn %s, want %s", turnOf(got), turnOf(want))
	case got.Damaged() != want.Damaged():
		return fmt.Sprintf("damage %v, want %v", got.Damage, want.Damage)
	}
	return ""
}

// diffEvents returns the first difference between two logs.
func diffEvents(got, want []hansard.Event) string {
	for i := range min(len(got), len(want)) {
		if !got[i].Time.Equal(want[i].Time) {
			return fmt.Sprintf("event %d has time %v, want %v", want[i].Seq, got[i].Time, want[i].Time)
		}
		if diff := diffEvent(got[i], want[i]); diff != "" {
			return diff
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d events, want %d", len(got), len(want))
	}
	return ""
}

// diffEvent returns the first difference between two events, ignoring their times.
func diffEvent(got, want hansard.Event) string {
	difference := func(field string, is, was any) string {
		return fmt.Sprintf("event %d has %s %.200q, want %.200q", want.Seq, field, is, was)
	}
	switch {
	case got.Seq != want.Seq:
		return fmt.Sprintf("event has seq %d, want %d", got.Seq, want.Seq)
	case got.Kind != want.Kind:
		return difference("kind", got.Kind, want.Kind)
	case got.Role != want.Role:
		return difference("role", got.Role, want.Role)
	case got.Author != want.Author:
		return difference("author", got.Author, want.Author)
	case got.Turn != want.Turn:
		return difference("turn", got.Turn, want.Turn)
	case got.By != want.By:
		return difference("by", got.By, want.By)
	case got.ID != want.ID:
		return difference("id", got.ID, want.ID)
	case !got.At.Equal(want.At):
		return fmt.Sprintf("event %d happened at %v, want %v", got.Seq, got.At, want.At)
	case !slices.Equal(got.Attachments, want.Attachments):
		return fmt.Sprintf("event %d has the attachments %v, want %v", got.Seq, got.Attachments, want.Attachments)
	case show(got.Fork) != show(want.Fork):
		return fmt.Sprintf("event %d begins the fork %s, want %s", got.Seq, show(got.Fork), show(want.Fork))
	case got.Redacted != want.Redacted:
		return fmt.Sprintf("event %d has redacted %v, want %v", got.Seq, got.Redacted, want.Redacted)
	case !slices.Equal(got.Redacts, want.Redacts):
		return fmt.Sprintf("event %d redacts %v, want %v", got.Seq, got.Redacts, want.Redacts)
	case got.Inbox != want.Inbox:
		return fmt.Sprintf("event %d has inbox %v, want %v", got.Seq, got.Inbox, want.Inbox)
	case !bytes.Equal(got.Data, want.Data):
		return difference("data", got.Data, want.Data)
	case !samePatch(got.Patch, want.Patch):
		return fmt.Sprintf("event %d has patch %s, want %s", got.Seq, show(got.Patch), show(want.Patch))
	}
	return ""
}

// sameReceipt compares two receipts.
func sameReceipt(a, b hansard.Receipt) bool { return reflect.DeepEqual(a, b) }

func samePatch(a, b *hansard.Patch) bool {
	if a == nil || b == nil {
		return a == b
	}
	return sameJSON([]byte(show(a)), []byte(show(b)))
}

func show(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// sameJSON compares the meaning of two texts: members in any order, numbers by their
// digits.
func sameJSON(a, b []byte) bool {
	va, errA := decode(a)
	vb, errB := decode(b)
	return errA == nil && errB == nil && reflect.DeepEqual(va, vb)
}

// canonical is the same for all texts that sameJSON considers the same.
func canonical(text []byte) string {
	v, err := decode(text)
	if err != nil {
		return fmt.Sprintf("not JSON: %q", text)
	}
	return show(v)
}

func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}
