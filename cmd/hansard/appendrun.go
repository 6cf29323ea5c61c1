package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"hansard"
	"hansard/engine"
)

// appendBatch stores one batch. It is checked before the store is opened, so
// that bad input changes nothing, not even by making the store's directory.
func (a *app) appendBatch(ctx context.Context, id hansard.SessionID, o *appendOptions, b hansard.Batch) error {
	if err := engine.CheckBatch(&b); err != nil {
		return err
	}
	return a.withStore(o.access(), func(s hansard.Store) error {
		ctx, cancel := forWrite(ctx)
		defer cancel()
		receipt, err := s.Append(ctx, id, b)
		if err != nil {
			return orInterrupted(err, "nothing was stored")
		}
		return a.acknowledge(receipt)
	})
}

// appendAttached attaches files and stores an event that names them. With --create
// the session is created first: attachments have to belong to one.
func (a *app) appendAttached(ctx context.Context, id hansard.SessionID, o *appendOptions, event hansard.Event) error {
	return a.withStore(o.access(), func(s hansard.Store) error {
		ctx, cancel := forWrite(ctx)
		defer cancel()
		if o.create {
			if _, err := s.Create(ctx, id, hansard.Meta{}); err != nil && !errors.Is(err, hansard.ErrExists) {
				return err
			}
		}
		for _, file := range o.attach {
			attached, err := a.attach(ctx, s, id, file)
			if err != nil {
				return err
			}
			event.Attachments = append(event.Attachments, attached)
		}
		receipt, err := s.Append(ctx, id, o.batch([]hansard.Event{event}, nil))
		if err != nil {
			return orInterrupted(err, "nothing was stored but what was attached")
		}
		return a.acknowledge(receipt)
	})
}

// appendAll stores all lines as one batch. The output of show --json may take
// several: a session has no size limit, and any of its events may carry a patch.
func (a *app) appendAll(ctx context.Context, id hansard.SessionID, o *appendOptions, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run := &batchRun{app: a, id: id, o: o}
	records := readRecords(ctx, in, o.defaults())
	for {
		rec, ok, err := next(ctx, records)
		if err != nil {
			return orInterrupted(run.failed(err), run.stored())
		}
		if !ok {
			break
		}
		if rec.left != "" {
			run.leaveOut(rec.left)
			continue
		}
		if err := run.add(ctx, rec); err != nil {
			return run.failed(err)
		}
	}
	return run.finish(ctx)
}

// appendEach stores every line as an append of its own. The store is opened with
// the first line, so that input without a valid line changes nothing.
func (a *app) appendEach(ctx context.Context, id hansard.SessionID, o *appendOptions, in io.Reader) error {
	readCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	records := readRecords(readCtx, in, o.defaults())
	run := &eachRun{app: a, id: id, o: o, progress: newProgress(a.stderr)}
	skipped := &batchRun{app: a}
	take := func() (record, bool, error) {
		for {
			rec, ok, err := next(readCtx, records)
			if rec.left == "" || err != nil || !ok {
				return rec, ok, err
			}
			skipped.leaveOut(rec.left)
		}
	}
	rec, ok, err := take()
	if err == nil && ok {
		err = a.withStore(o.access(), func(s hansard.Store) error { return run.all(ctx, s, rec, take) })
	}
	run.progress.done()
	skipped.tellLeft()
	return run.finish(err)
}

// next takes a record; the end of the context is checked first, so that a signal
// stops a run whose input is always ready.
func next(ctx context.Context, records <-chan record) (rec record, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return record{}, false, err
	}
	select {
	case rec, ok = <-records:
		if err := ctx.Err(); err != nil && !ok { // it ends with the context, too: then it was not all
			return record{}, false, err
		}
		return rec, ok, rec.err
	case <-ctx.Done():
		return record{}, false, ctx.Err()
	}
}

// eachRun is one append --each in progress.
type eachRun struct {
	app         *app
	id          hansard.SessionID
	o           *appendOptions
	progress    *progress
	count       int
	replayed    int
	first, last hansard.Seq
	behind      hansard.Seq // where the last event is, stored now or before
}

// all appends a record and those that follow it.
func (r *eachRun) all(ctx context.Context, s hansard.Store, rec record, next func() (record, bool, error)) error {
	ctx, cancel := forWrite(ctx)
	defer cancel()
	for {
		if err := r.append(ctx, s, rec); err != nil {
			return err
		}
		var ok bool
		var err error
		if rec, ok, err = next(); err != nil || !ok {
			return err
		}
	}
}

func (r *eachRun) append(ctx context.Context, s hansard.Store, rec record) error {
	b := r.o.batch([]hansard.Event{rec.event}, rec.patch)
	if b.Key != "" {
		b.Key = fmt.Sprintf("%s:%d", r.o.key, rec.line)
	}
	if b.Expect != nil && r.count > 0 {
		b.Expect = hansard.At(r.behind)
	}
	receipt, err := s.Append(ctx, r.id, b)
	if err != nil {
		return &lineError{rec.line, err}
	}
	r.count++
	r.behind = endOf(receipt)
	if receipt.Last > 0 { // otherwise its id was known
		if r.first == 0 {
			r.first = receipt.First
		}
		r.last = receipt.Last
	}
	if receipt.Replayed {
		r.replayed++
	}
	r.progress.show(func() string { return fmt.Sprintf("%s  %s appended, seq %d", r.id, plural(r.count, "event"), r.last) })
	if !r.app.json {
		return nil
	}
	if err := r.app.printReceipt(receipt); err != nil {
		return err
	}
	return r.app.out.Flush() // a program waiting for the receipt may act on it now
}

// finish says how much was stored, even if the run was cut short.
func (r *eachRun) finish(err error) error {
	if err == nil {
		if r.app.json {
			return nil
		}
		_, err := fmt.Fprintln(r.app.out, r.summary())
		return err
	}
	if stopped := orInterrupted(err, r.stored()); stopped != err { //nolint:errorlint // this very error
		return stopped
	}
	return fmt.Errorf("%w; %s", err, r.stored())
}

func (r *eachRun) summary() string {
	if r.count == 0 {
		return fmt.Sprintf("%s  0 events", r.id)
	}
	text := fmt.Sprintf("%s  %s", r.id, plural(r.count, "event"))
	if r.last > 0 {
		text = fmt.Sprintf("%s  seq %s, %s", r.id, seqRange(r.first, r.last), plural(r.count, "event"))
	}
	if r.replayed > 0 {
		by := "ids"
		if r.o.key != "" {
			by = "keys"
		}
		text += fmt.Sprintf(" (%s known by their %s)", humanCount(r.replayed), by)
	}
	return text
}

func (r *eachRun) stored() string {
	if r.count == 0 {
		return "nothing was stored"
	}
	return fmt.Sprintf("stored before that: %s, last seq %d", plural(r.count, "event"), r.last)
}

// acknowledge prints the receipt of the only append. If it can't be written the command still
// succeeds: it is stored, and who saw a failure would store it again.
func (a *app) acknowledge(r hansard.Receipt) error {
	err := a.printReceipt(r)
	if err == nil {
		err = a.out.Flush()
	}
	if err == nil || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	a.out.Reset(io.Discard) // the error sticks
	a.warn("it is stored, but the receipt could not be written", err)
	return nil
}

func (a *app) printReceipt(r hansard.Receipt) error {
	if a.json {
		return a.out.jsonLine(r)
	}
	first, last, note := r.First, r.Last, ""
	known := 0
	for _, seq := range r.Seqs {
		if seq < r.First || r.First == 0 {
			known++
		}
	}
	switch {
	case r.Replayed && r.First > 0:
		note = "  (this key was stored before; nothing was written)"
	case r.Replayed:
		first, last = slices.Min(r.Seqs), slices.Max(r.Seqs)
		note = "  (known by the ids; nothing was written)"
	case known > 0:
		note = fmt.Sprintf("  (%s known by their ids)", humanCount(known))
	}
	_, err := fmt.Fprintf(a.out, "%s  seq %s%s\n", escapeLine(string(r.Session)), seqRange(first, last), note)
	return err
}

// endOf is the seq of the last event of a batch, stored now or before.
func endOf(r hansard.Receipt) hansard.Seq {
	if r.Last == 0 && len(r.Seqs) > 0 {
		return slices.Max(r.Seqs)
	}
	return r.Last
}

func seqRange(first, last hansard.Seq) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d–%d", first, last)
}
