package conversations

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"hansard"
)

const (
	defaultLimit = 20
	maxLimit     = 100
)

// MaxPageBytes is how many bytes of items a list may have; only a single item may exceed it.
const MaxPageBytes = 8 << 20

// page is a list of items as it grows.
type page struct {
	items []item
	limit int // items
	room  int // bytes
	bytes int
	// more: there are further items that did not fit.
	more bool
}

// full reports whether another item of this size has to go to the next page.
func (p *page) full(size int) bool {
	return len(p.items) == p.limit || len(p.items) > 0 && p.bytes+size > p.room
}

func (p *page) add(it item) {
	p.items = append(p.items, it)
	p.bytes += len(it.body)
}

func (h *handler) listItems(ctx context.Context, r *request) ([]byte, error) {
	p := &page{limit: defaultLimit, room: h.pageBytes}
	if err := p.parseLimit(r.query.Get("limit")); err != nil {
		return nil, err
	}
	order := r.query.Get("order")
	switch order {
	case "":
		order = "desc"
	case "asc", "desc":
	default:
		return nil, badRequest("order", "invalid_value", "Invalid value: '%.64s'. Supported values are: 'asc' and 'desc'.", order)
	}
	k, info, err := h.index.open(ctx, r.id)
	if err != nil {
		return nil, err
	}
	after := hansard.Seq(0)
	if order == "desc" {
		after = info.LastSeq + 1
	}
	if itemID := r.query.Get("after"); itemID != "" {
		if after, err = h.position(ctx, r.id, k, itemID); err != nil {
			return nil, err
		}
	}
	most := p.pieceMax(&info)
	if order == "asc" {
		err = h.forward(ctx, r.id, k, after, most, p)
	} else {
		err = h.backward(ctx, r.id, k, after, most, p)
	}
	return listOf(p.items, p.more), err
}

func (p *page) parseLimit(s string) error {
	if s == "" {
		return nil
	}
	n, err := strconv.Atoi(s)
	switch {
	case err != nil:
		return badRequest("limit", "invalid_type", "Invalid type for 'limit': expected an integer, but got '%.64s' instead.", s)
	case n < 1:
		return badRequest("limit", "integer_below_min_value", "Invalid 'limit': integer below minimum value. Expected a value >= 1, but got %d instead.", n)
	case n > maxLimit:
		return badRequest("limit", "integer_above_max_value", "Invalid 'limit': integer above maximum value. Expected a value <= %d, but got %d instead.", maxLimit, n)
	}
	p.limit = n
	return nil
}

// pieceMax is how many events to read at once: about twice what a page has room
// for, so that large ones are not read for nothing.
func (p *page) pieceMax(info *hansard.Info) int {
	average := int(info.Bytes/int64(info.LastSeq+1)) + 1
	return min(max(2*p.room/average, 8), knownChunk)
}

// position is the seq of the item after which a list continues. An item that was deleted
// since still marks the position.
func (h *handler) position(ctx context.Context, id hansard.SessionID, k *known, itemID string) (hansard.Seq, error) {
	it, _, err := h.find(ctx, id, k, itemID)
	if err != nil {
		return 0, err
	}
	if it == nil {
		problem := noItem(id, itemID)
		problem.param = "after"
		return 0, problem
	}
	// Two items with the same id can't come from this API, but from an import.
	// Continuing after the wrong one would repeat the same pages for ever, or skip some.
	if live, _ := k.places(itemID); len(live) > 1 {
		return 0, badRequest("after", "ambiguous_item_id",
			"Invalid 'after': %d events of the session have the item id '%s', the last two at seq %d and %d.", len(live), itemID, live[1], live[0])
	}
	return it.seq, nil
}

// forward fills a page with the items after a seq. It reads in pieces, so that a remote
// store does not send more than the page has room for.
func (h *handler) forward(ctx context.Context, id hansard.SessionID, k *known, after hansard.Seq, most int, p *page) error {
	if err := k.cover(ctx, after); err != nil {
		return err
	}
	for size := min(p.limit+1, most); ; size = min(4*size, most) {
		got := 0
		for e, err := range h.store.Read(ctx, id, hansard.Range{After: after, Limit: size}) {
			if err != nil {
				return err
			}
			got++
			after = e.Seq
			s, ok := shapeOf(&e)
			if !ok || k.isDeleted(e.Seq) {
				continue
			}
			it := s.at(id, e.Seq)
			if p.full(len(it.body)) {
				p.more = true
				return nil
			}
			p.add(it)
		}
		if got < size {
			return nil
		}
	}
}

// backward fills a page with the items before a seq, the newest first. It reads forward,
// in pieces from the end to the beginning, ever larger ones where there is little to find;
// of each piece no more is kept than fits the page.
func (h *handler) backward(ctx context.Context, id hansard.SessionID, k *known, before hansard.Seq, most int, p *page) error {
	for size := min(2*p.limit, most); before > 1 && !p.more; size = min(4*size, most) {
		last := before - 1
		begin := last - min(last, hansard.Seq(size))
		if err := k.cover(ctx, begin); err != nil {
			return err
		}
		piece, err := h.newest(ctx, id, k, begin, last, p)
		if err != nil {
			return err
		}
		for _, it := range slices.Backward(piece) {
			if p.full(len(it.body)) {
				p.more = true
				return nil
			}
			p.add(it)
		}
		before = begin + 1
	}
	return nil
}

// newest returns the last items of (begin, last], oldest first: as many as the page may
// take, and one more, which shows that there are more.
func (h *handler) newest(ctx context.Context, id hansard.SessionID, k *known, begin, last hansard.Seq, p *page) ([]item, error) {
	var piece []item
	held := 0
	for e, err := range h.store.Read(ctx, id, hansard.Range{After: begin, Limit: int(last - begin)}) {
		if err != nil {
			return nil, err
		}
		s, ok := shapeOf(&e)
		if !ok || k.isDeleted(e.Seq) {
			continue
		}
		it := s.at(id, e.Seq)
		piece = append(piece, it)
		held += len(it.body)
		// If the items after the first two overflow the page by themselves, the second
		// is enough to show that there are more.
		for len(piece) > p.limit-len(p.items)+1 || len(piece) > 2 && held-len(piece[0].body)-len(piece[1].body) > p.room {
			held -= len(piece[0].body)
			piece = piece[1:]
		}
	}
	return piece, nil
}

// listOf is the API's object for a list. The bytes of the items are copied unchanged:
// an encoder would reformat them.
func listOf(items []item, more bool) []byte {
	first, last := []byte("null"), []byte("null")
	size := 128
	for i := range items {
		size += len(items[i].body) + 1
	}
	out := append(make([]byte, 0, size), `{"object":"list","data":[`...)
	for i := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, items[i].body...)
	}
	if n := len(items); n > 0 {
		first, last = quote(items[0].id), quote(items[n-1].id)
	}
	return fmt.Appendf(out, `],"first_id":%s,"last_id":%s,"has_more":%t}`, first, last, more)
}
