package sessionlog

import (
	"bytes"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/internal/vfs"
)

// The third step of a repair: writing the new log. Each line carries the checksum of the
// line before and offsets of others, so the lines after a loss are written with new ones
// (W4). Their seq, time and content stay the same, byte for byte; lines that are still
// right are copied.
//
// The file has a temporary name: repair.go syncs it and renames it over the old log under
// write.lock. If the repair dies here, nothing has changed.

// WriteTo writes the new log: a.Raw, the pieces, and between them an event of kind lost
// for each missing seq. a.Head and a.Raw must be set. It does not sync. The writer it
// returns knows what was written and can end the turn.
func (a *Assembly) WriteTo(f vfs.File) (*lineWriter, error) {
	w := &lineWriter{f: f, buf: bytes.Clone(a.Raw), crc: a.Head.CRC, left: a.Head.Left}
	for _, p := range a.Pieces {
		for w.Seq+1 < p.from {
			// It gets the time of the next surviving line: its own is not known.
			e := hansard.Event{Kind: hansard.KindLost, Data: []byte("null")}
			if err := w.own(&e, p.First.Time, ""); err != nil {
				return nil, err
			}
		}
		if err := w.copy(p); err != nil {
			return nil, err
		}
	}
	return w, w.flush()
}

// lineWriter writes lines one after the other and keeps what the next line has to say about
// those before it.
type lineWriter struct {
	f    vfs.File
	at   int64 // file offset of buf
	buf  []byte
	Kept int64 // bytes of lines taken from the old log, for the report

	// State after the last line written, which the next line continues: its seq and crc,
	// the lines left in its batch, and the offsets, in the new file, of the newest patch
	// and the newest line about the turn.
	Seq            hansard.Seq
	crc            uint32
	left           int // lines of the batch that are still to come
	deleted        bool
	metaAt, turnAt int64
	turn           *TurnState    // from the newest line about it
	grants         engine.Grants // from all lines, including those that mention lost grants
}

// copy writes the lines of a piece, read again from its source.
func (w *lineWriter) copy(p piece) error {
	return eachPlace(p.Src.F, p.At, func(l place) (more bool, err error) {
		// Lines after the run may belong to another one.
		if l.at >= p.run.end {
			return false, nil
		}
		// The piece begins within the run: the new log already has the lines before it.
		if l.Seq < p.from {
			return true, nil
		}
		if p.Src.Log {
			w.Kept += int64(len(l.b)) + 1
		}
		return l.Seq < p.to, w.line(l)
	})
}

// line writes a line. If what it says about earlier lines still holds, the bytes are
// copied; otherwise prev, crc, meta and turned are replaced and nothing else. After the
// loss of a patch, meta points to the newest one that is left.
func (w *lineWriter) line(p place) error {
	begin, at := len(w.buf), w.at+int64(len(w.buf))
	// Before the first loss this holds for every line, so the new log begins with the bytes
	// of the old one.
	if p.Prev == w.crc && p.MetaAt == w.metaAt && p.TurnAt == w.turnAt {
		w.buf = append(append(w.buf, p.b...), '\n')
	} else {
		body := p.b[:len(p.b)-SuffixWidth]
		if from, to, ok := offsetsIn(body); ok {
			w.buf = appendOffsets(append(w.buf, body[:from]...), w.metaAt, w.turnAt)
			body = body[to:]
		}
		w.buf = AppendSuffix(append(w.buf, body...), begin, w.crc)
	}
	// Offsets in the new file: what later lines refer to has moved.
	if p.Patch != nil {
		w.metaAt = at
	}
	if p.aboutTurn() {
		w.turnAt = at
		// An unreadable record is ignored; the line is kept, and verify reports it.
		if t, err := p.TurnState(); err == nil {
			w.turn = t
		}
	}
	e := p.Event()
	_ = w.grants.Next(&e) // a line that breaks a rule is kept; verify reports it
	w.Seq, w.left, w.deleted = p.Seq, p.Left, p.Deleted
	return w.written()
}

// own writes an event that the repair makes. If it replaces a line of a batch, b counts
// down, so that the batch is whole again for readers (L4).
func (w *lineWriter) own(e *hansard.Event, at time.Time, g hansard.Grant) error {
	w.Seq++
	w.left = max(0, w.left-1)
	st := Stamp{Seq: w.Seq, Time: at.UTC().Format(TimeLayout), Left: w.left, Turn: g, MetaAt: w.metaAt, TurnAt: w.turnAt, Prev: w.crc}
	w.buf = AppendEvent(w.buf, &st, EncodeBody(nil, e, "", ""))
	e.Turn = g
	_ = w.grants.Next(e)
	return w.written()
}

// written notes the line that was just added to buf, and writes buf to the file when it
// is large.
func (w *lineWriter) written() error {
	w.crc = LineCRC(w.buf)
	if len(w.buf) < 1<<20 {
		return nil
	}
	return w.flush()
}

// flush writes buf to the file. After an error the file is useless, and the caller removes
// it.
func (w *lineWriter) flush() error {
	if _, err := w.f.WriteAt(w.buf, w.at); err != nil {
		return err
	}
	w.at += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

// EndTurn ends the turn that the new log says is held (T6): the lost lines may have given
// it to someone else, and a repair must not revive an old grant. The holder is fenced at
// its next write and claims again. If the turn is free or the session deleted, nothing
// happens.
func (w *lineWriter) EndTurn(now time.Time) error {
	var held hansard.Grant
	switch {
	case w.deleted:
		return nil
	case w.grants.Current != nil: // also one that was granted in a lost line
		held = w.grants.Current.Grant
	case w.turn != nil && w.turn.Held != nil:
		held = w.turn.Held.Grant
	default:
		return nil
	}
	e := (&hansard.TurnRecord{Change: hansard.TurnEnded, Why: "repaired"}).Event()
	if err := w.own(&e, now, held); err != nil {
		return err
	}
	return w.flush()
}
