package importer

import (
	"context"
	"crypto/sha256"
)

// past is what is known about the records of a source, to find out which of them its forks
// repeat. It is read once for all forks: it may be long.
type past struct {
	history history
	records []pastRecord // all of them, in order
}

type pastRecord struct {
	id, same  string
	data      [16]byte // its checksum
	own, link bool
}

// at is the id of the n-th record, and whether the source itself repeats that record from its
// parent.
func (p *past) at(n int, own *forkPoint) (id string, inherited bool) {
	for i := range p.records[:n+1] {
		rec := &p.records[i]
		inherited = !rec.link && own.copied(&Record{Same: rec.same, Own: rec.own})
	}
	return eventID(p.records[n].id), inherited
}

// past is the past of a source that may have forks.
func (j *job) past(ctx context.Context, s *Source) (*past, error) {
	if p := j.pasts[s]; p != nil {
		return p, nil
	}
	p := &past{history: history{}}
	err := s.quiet().each(ctx, func(rec Record) error {
		p.history.add(&rec, s.Format, len(p.records))
		p.records = append(p.records, pastRecord{id: rec.Event.ID, same: rec.Same, data: checkSum(rec.Event.Data), own: rec.Own, link: rec.Link})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if j.pasts == nil {
		j.pasts = map[*Source]*past{}
	}
	j.pasts[s] = p
	return p, nil
}

// history is the set of records of a session that a fork may repeat.
type history map[[16]byte]spot

// spot is where a record is in its file: its place among all records, and among those
// that are copied.
type spot struct{ place, order int }

func (h history) has(k [16]byte) bool { _, ok := h[k]; return ok }

// add takes the record at a place.
func (h history) add(rec *Record, f Format, place int) {
	if rec.Same == "" || rec.Link {
		return
	}
	if k := rec.key(f); !h.has(k) {
		h[k] = spot{place: place, order: len(h)}
	}
}

func readHistory(ctx context.Context, s *Source) (history, error) {
	h := history{}
	n := 0
	err := s.quiet().each(ctx, func(rec Record) error {
		h.add(&rec, s.Format, n)
		n++
		return nil
	})
	return h, err
}

// key identifies a record, and its copy in a fork's file.
func (r *Record) key(f Format) (k [16]byte) {
	h := sha256.New()
	_, _ = h.Write([]byte(r.Same + "\x00"))
	forks, _ := f.(forking)
	for _, m := range object(r.Event.Data) {
		if forks == nil || !forks.restamped(m.name) {
			_, _ = h.Write(append([]byte(m.name), 0))
			_, _ = h.Write(m.value)
		}
	}
	copy(k[:], h.Sum(nil))
	return k
}

func checkSum(data []byte) (k [16]byte) {
	sum := sha256.Sum256(data)
	copy(k[:], sum[:])
	return k
}

// quiet is an input of the source that does not report damage, because it is reported
// elsewhere.
func (s *Source) quiet() *Input { return &Input{Source: s, damage: func(Damage) {}} }
