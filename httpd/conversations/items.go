package conversations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"hansard"
)

// maxItems is how many items one request may add. OpenAI accepts 20, but its SDKs don't
// split the items of a turn: with ten parallel tool calls and their results that fails.
const maxItems = 100

// never is a last seq that no session has: an append that expects it can only be
// a replay.
const never = hansard.Seq(1) << 62

// parseItems checks the items of a request.
func (r *request) parseItems(needed bool) ([]*shape, error) {
	value := r.body.value("items")
	if !r.body.given("items") {
		if needed {
			return nil, badRequest("items", "missing_required_parameter", "Missing required parameter: 'items'.")
		}
		return nil, nil
	}
	list, n, ok := arrayOf(value, maxItems)
	if !ok {
		return nil, wrongType("items", "an array of objects", value)
	}
	if n > maxItems {
		return nil, badRequest("items", "array_above_max_length",
			"Invalid 'items': array too long. Expected an array with maximum length %d, but got an array with length %d instead.", maxItems, n)
	}
	shapes := make([]*shape, len(list))
	seen := make(map[string]bool)
	for i, raw := range list {
		o, ok := objectOf(raw)
		if !ok {
			return nil, wrongType(fmt.Sprintf("items[%d]", i), "an object", raw)
		}
		s, problem := shapeOfObject(o)
		if problem != nil {
			problem.param = fmt.Sprintf("items[%d].%s", i, problem.param)
			problem.message += fmt.Sprintf(" (items[%d])", i)
			return nil, problem
		}
		if s.given != "" && seen[s.given] {
			return nil, duplicate(i, s.given)
		}
		seen[s.given] = true
		shapes[i] = s
	}
	return shapes, nil
}

func duplicate(i int, itemID string) *apiError {
	return badRequest(fmt.Sprintf("items[%d].id", i), "duplicate_item_id",
		"Duplicate item found with id '%s'. Remove duplicate items from your input and try again.", itemID)
}

// notYours refuses an id that this server may make for another item.
func notYours(i int, itemID string) *apiError {
	return badRequest(fmt.Sprintf("items[%d].id", i), "invalid_value",
		"Invalid 'items[%d].id': '%s' is an id that only the server makes.", i, itemID)
}

func (r *request) events(shapes []*shape) []hansard.Event {
	events := make([]hansard.Event, len(shapes))
	for i, s := range shapes {
		events[i] = s.event(r.inbox)
	}
	return events
}

// createItems appends items, all or none.
func (h *handler) createItems(ctx context.Context, r *request) ([]byte, error) {
	shapes, err := r.parseItems(true)
	if err != nil {
		return nil, err
	}
	if len(shapes) == 0 {
		_, err := h.retrieve(ctx, r)
		return listOf(nil, false), err
	}
	receipt, err := h.appendItems(ctx, r, shapes)
	if err != nil {
		return nil, err
	}
	items := make([]item, len(shapes))
	for i, s := range shapes {
		items[i] = s.at(r.id, receipt.First+hansard.Seq(i))
	}
	return listOf(items, false), nil
}

// appendItems stores a batch. Ids that clients give must be new, and another writer may
// use one at the same time: such a batch is stored on the condition that the log still
// ends where it was read.
func (h *handler) appendItems(ctx context.Context, r *request, shapes []*shape) (hansard.Receipt, error) {
	b := hansard.Batch{Events: r.events(shapes), Key: r.key, Turn: r.turn}
	if !anyGiven(shapes) {
		return h.store.Append(ctx, r.id, b)
	}
	for range maxTries {
		k, info, err := h.index.open(ctx, r.id)
		if err == nil {
			err = k.cover(ctx, 0)
		}
		if err != nil {
			return hansard.Receipt{}, err
		}
		problem, err := h.checkNew(ctx, r.id, k, shapes)
		if err != nil {
			return hansard.Receipt{}, err
		}
		if problem != nil && r.key == "" {
			return hansard.Receipt{}, problem
		}
		if problem != nil {
			// Unless this is a retry, and the items are its own: then the store knows
			// the key, which it checks before this condition, which is never met.
			b.Expect = hansard.At(never)
			receipt, err := h.store.Append(ctx, r.id, b)
			if errors.Is(err, hansard.ErrConflict) {
				err = problem
			}
			return receipt, err
		}
		b.Expect = hansard.At(info.LastSeq)
		receipt, err := h.store.Append(ctx, r.id, b)
		if !errors.Is(err, hansard.ErrConflict) {
			return receipt, err
		}
	}
	return hansard.Receipt{}, errTooBusy(r.id)
}

func anyGiven(shapes []*shape) bool {
	for _, s := range shapes {
		if s.given != "" {
			return true
		}
	}
	return false
}

// checkNew reports the item whose id is taken, or is one that this server would make for
// another item.
func (h *handler) checkNew(ctx context.Context, id hansard.SessionID, k *known, shapes []*shape) (problem, err error) {
	for i, s := range shapes {
		if s.given == "" {
			continue
		}
		if live, _ := k.places(s.given); len(live) > 0 {
			return duplicate(i, s.given), nil
		}
		seq, made := parseItemID(id, s.given)
		if !made {
			continue
		}
		found, err := h.itemAt(ctx, id, seq)
		if err != nil {
			return nil, err
		}
		switch {
		case found == nil || found.id != s.given:
			return notYours(i, s.given), nil
		case !k.isDeleted(seq):
			return duplicate(i, s.given), nil
		}
	}
	return nil, nil
}

// itemAt is the item at a seq, deleted or not; nil if there is none.
func (h *handler) itemAt(ctx context.Context, id hansard.SessionID, seq hansard.Seq) (*item, error) {
	e, err := h.eventAt(ctx, id, seq)
	if err != nil || e == nil {
		return nil, err
	}
	s, ok := shapeOf(e)
	if !ok {
		return nil, nil
	}
	it := s.at(id, e.Seq)
	return &it, nil
}

// find returns the item with an id, nil if there is none, and whether it is deleted. An
// id made by this server contains the seq; one that a client gave is searched for from the
// end, where it most likely is.
func (h *handler) find(ctx context.Context, id hansard.SessionID, k *known, itemID string) (it *item, deleted bool, err error) {
	var was *item // a deleted one; another item may have got the id since
	if seq, ok := parseItemID(id, itemID); ok {
		it, err := h.itemAt(ctx, id, seq)
		if err == nil {
			err = k.cover(ctx, seq)
		}
		if err != nil {
			return nil, false, err
		}
		if it != nil && it.id == itemID {
			if !k.isDeleted(seq) {
				return it, false, nil
			}
			was = it
		}
	}
	for window := hansard.Seq(256); ; window *= 4 {
		from, to, _ := k.span() // before places, which then has everything after from
		live, gone := k.places(itemID)
		if len(live) > 0 {
			it, err := h.itemAt(ctx, id, live[0])
			if it != nil && it.id != itemID {
				it = nil // another id with the same hash
			}
			return it, false, err
		}
		switch {
		case from > 0:
			if err := k.cover(ctx, to-min(to, window)); err != nil {
				return nil, false, err
			}
		case was != nil || len(gone) == 0:
			return was, was != nil, nil
		default:
			it, err := h.itemAt(ctx, id, gone[0])
			return it, true, err
		}
	}
}

// wanted finds the item that a request is about.
func (h *handler) wanted(ctx context.Context, r *request) (it *item, deleted bool, err error) {
	k, _, err := h.index.open(ctx, r.id)
	if err != nil {
		return nil, false, err
	}
	it, deleted, err = h.find(ctx, r.id, k, r.itemID)
	if err == nil && it == nil {
		err = noItem(r.id, r.itemID)
	}
	return it, deleted, err
}

func (h *handler) retrieveItem(ctx context.Context, r *request) ([]byte, error) {
	it, deleted, err := h.wanted(ctx, r)
	if err != nil {
		return nil, err
	}
	if deleted {
		return nil, noItem(r.id, r.itemID)
	}
	return it.body, nil
}

// deleteKey begins the key of every deletion, followed by the item's seq. The store keeps
// keys for ever, so exactly one of any number of deletions of an item is the first,
// without a condition that would keep failing while a session is busy.
const deleteKey = "openai:delete:"

func (h *handler) deleteItem(ctx context.Context, r *request) ([]byte, error) {
	it, deleted, err := h.wanted(ctx, r)
	if err != nil {
		return nil, err
	}
	if deleted && r.key == "" {
		return nil, noItem(r.id, r.itemID)
	}
	data, _ := json.Marshal(tombstone{Seq: it.seq, ID: it.id, Key: r.key}) // numbers and strings: can't fail
	b := hansard.Batch{
		Events: []hansard.Event{{Kind: kindDeleted, Data: data}},
		Key:    deleteKey + strconv.FormatUint(uint64(it.seq), 10),
		Turn:   r.turn,
	}
	if deleted {
		// Only a retry of the request that deleted it gets the same answer again.
		b.Expect = hansard.At(never)
	}
	receipt, err := h.store.Append(ctx, r.id, b)
	switch {
	case errors.Is(err, hansard.ErrKeyReused), errors.Is(err, hansard.ErrConflict):
		return nil, noItem(r.id, r.itemID)
	case err != nil:
		return nil, err
	case receipt.Replayed && r.key == "":
		return nil, noItem(r.id, r.itemID)
	}
	return h.stored(ctx, r)
}
