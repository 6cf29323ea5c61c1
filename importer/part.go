package importer

import (
	"context"
	"fmt"
	"maps"
)

// In a source with several sessions, such as a database, a session that may repeat the
// records of another is a part: a source of its own, like a file, whose parent is another
// part. Forks are then handled in the same way.

// Part is a session of the source whose first records may come from another session, forkOf.
// from is the part of that session; nil if the source does not have it. read reads this
// session alone, like [Format.Read].
//
// The part is passed on as [Record].Begins, before the records of the session and after all
// of those of from. Parts with the same parent are best passed on one after the other, each
// followed by its own forks: then each is read at most once more, however many forks it has.
func (in *Input) Part(session, forkOf string, from *Source, read func(in *Input, emit func(Record) error) error) *Source {
	return &Source{Format: in.Format, Root: in.Root, Path: in.Path, Session: session, forkOf: forkOf, parent: from, read: read}
}

// each passes on the records of the source, or of the part.
func (in *Input) each(ctx context.Context, emit func(Record) error) error {
	if in.read != nil {
		return in.read(in, emit)
	}
	return in.Format.Read(ctx, in, emit)
}

// begin finds out what a session is a fork of, before its records come.
func (j *job) begin(ctx context.Context, s *Source) error {
	if p := s.parent; p != nil {
		if d := j.sessions[p.Session]; d != nil { // its pending records must be stored first
			if err := j.fail(p.Session, d, j.stored(d, d.finish(ctx))); err != nil {
				return err
			}
		}
	}
	j.forget(s)
	f, err := j.findFork(ctx, s.quiet())
	if err != nil {
		return j.fail(s.Session, &delivery{id: s.id()}, err)
	}
	j.forks[s.Session] = f
	return nil
}

// How many ancestors of a part are remembered for its siblings, and with how many records.
const (
	heldPasts   = 64
	heldRecords = 1 << 19
)

// forget keeps only the pasts of the nearest ancestors of a part.
func (j *job) forget(s *Source) {
	near, records := map[*Source]bool{}, 0
	for p := s.parent; p != nil && len(near) < heldPasts; p = p.parent {
		if past := j.pasts[p]; past != nil {
			records += len(past.records)
		}
		near[p] = p == s.parent || records <= heldRecords
	}
	maps.DeleteFunc(j.pasts, func(p *Source, _ *past) bool { return !near[p] })
}

// maxRemarks is how many remarks are reported for one source.
const maxRemarks = 20

// remark adds a remark about a source, or a part of one.
func (j *job) remark(in *Input, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if in.Source != j.report.Source {
		text = fmt.Sprintf("session %s: %s", in.id(), text)
	}
	switch j.remarks++; {
	case j.remarks == 1:
		j.report.Remark = text
	case j.remarks <= maxRemarks:
		j.report.Remark += "; " + text
	}
}
