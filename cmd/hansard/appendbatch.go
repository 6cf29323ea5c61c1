package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"hansard"
	"hansard/engine"
)

// batchRun is one append --jsonl in progress: one batch, unless the input is a copy
// of a session that does not fit into one.
type batchRun struct {
	app    *app
	id     hansard.SessionID
	o      *appendOptions
	events []hansard.Event
	patch  *hansard.Patch
	bytes  int
	copied bool
	left   map[string]int // what was left out, with counts

	batches     int
	first, last hansard.Seq
	behind      hansard.Seq // where the last event is, stored now or before
}

func (r *batchRun) leaveOut(what string) {
	if r.left == nil {
		r.left = map[string]int{}
	}
	r.left[what]++
}

// add takes one more event. A batch ends with the event that carries a patch, and
// where it would be too large; only a copy may continue with another one.
func (r *batchRun) add(ctx context.Context, rec record) error {
	r.copied = r.copied || rec.copied
	full := r.bytes+len(rec.event.Data) > hansard.MaxBatchBytes || len(r.events) == hansard.MaxBatchEvents
	switch {
	case len(r.events) == 0:
	case (r.patch != nil || full) && r.copied:
		if err := r.append(ctx); err != nil {
			return err
		}
	case r.patch != nil:
		return &lineError{rec.line - 1, bad("only the last event of a batch can carry a patch; use --each")}
	case full:
		// Do not read gigabytes only to refuse them.
		err := engine.CheckBatch(&hansard.Batch{Events: append(r.events, rec.event)})
		return &hinted{&lineError{rec.line, err}, "use --each to store every line as an append of its own"}
	}
	r.events, r.patch = append(r.events, rec.event), rec.patch
	r.bytes += len(rec.event.Data)
	return nil
}

// append stores what was read. The batches after the first one have their own keys,
// and expect to follow it.
func (r *batchRun) append(ctx context.Context) error {
	b := r.o.batch(r.events, r.patch)
	if r.batches > 0 {
		b.Create = false
		if b.Key != "" {
			b.Key = fmt.Sprintf("%s:%d", r.o.key, r.batches+1)
		}
		if b.Expect != nil {
			b.Expect = hansard.At(r.behind)
		}
	}
	if err := engine.CheckBatch(&b); err != nil {
		return err
	}
	var receipt hansard.Receipt
	err := r.app.withStore(r.o.access(), func(s hansard.Store) error {
		ctx, cancel := forWrite(ctx)
		defer cancel()
		var err error
		receipt, err = s.Append(ctx, r.id, b)
		return err
	})
	if err != nil {
		return orInterrupted(err, r.stored())
	}
	r.batches++
	r.behind = endOf(receipt)
	if receipt.Last > 0 { // otherwise all of it was known
		if r.first == 0 {
			r.first = receipt.First
		}
		r.last = receipt.Last
	}
	r.events, r.patch, r.bytes = nil, nil, 0
	if r.app.json {
		return r.app.printReceipt(receipt)
	}
	return nil
}

// finish stores the last batch and reports the result of all.
func (r *batchRun) finish(ctx context.Context) error {
	r.tellLeft()
	if len(r.events) == 0 && r.batches == 0 {
		if r.left != nil {
			return nil // already reported
		}
		return &usageError{"there are no events in the input", "give one JSON value per line"}
	}
	if r.batches == 0 { // the usual: one batch
		return r.app.appendBatch(ctx, r.id, r.o, r.o.batch(r.events, r.patch))
	}
	if len(r.events) > 0 {
		if err := r.append(ctx); err != nil {
			return r.failed(err)
		}
	}
	if r.app.json {
		return nil
	}
	stored := "nothing was written: all ids are known"
	if r.last > 0 {
		stored = "seq " + seqRange(r.first, r.last)
	}
	_, err := fmt.Fprintf(r.app.out, "%s  %s, in %s\n", r.id, stored, plural(r.batches, "append"))
	return err
}

// tellLeft reports what was left out of a copy.
func (r *batchRun) tellLeft() {
	for _, what := range slices.Sorted(maps.Keys(r.left)) {
		fmt.Fprintf(r.app.stderr, "left out: %s %s\n", plural(r.left[what], "event"), what)
	}
	if r.left != nil {
		fmt.Fprintln(r.app.stderr, "hint: hansard copy keeps everything, with its seqs")
	}
}

// failed says how much was stored before an error.
func (r *batchRun) failed(err error) error {
	if r.batches == 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, r.stored())
}

func (r *batchRun) stored() string {
	if r.batches == 0 {
		return "nothing was stored"
	}
	return fmt.Sprintf("stored before that: events up to seq %d", r.last)
}
