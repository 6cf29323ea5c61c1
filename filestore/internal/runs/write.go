package runs

import (
	"bytes"
	"math/bits"
	"slices"

	"hansard/filestore/internal/crc32c"
	"hansard/internal/vfs"
)

// write writes a run: what it merges, and more pairs. The head comes last, when the fences
// are known.
func (x Index) write(f vfs.File, r *Run, merged []*Run, pairs []Pair) error {
	h := append(r.head[:0], Magic...)
	for _, v := range []uint64{x.UID, uint64(r.From), uint64(r.UpTo), uint64(r.crc[1])<<32 | uint64(r.crc[0]), uint64(r.Pairs)} {
		h = le.AppendUint64(h, v)
	}
	m, err := x.merge(merged, pairs)
	defer m.close()
	var fences []byte
	b := make([]byte, 0, min(16, r.pages())*pageSize)
	for n := int64(0); n < r.pages() && err == nil; n++ {
		begin := len(b)
		b = b[:begin+pageSize]
		page := b[begin:]
		clear(page)
		for i := range int(min(perPage, r.Pairs-perPage*n)) {
			p, err := m.next()
			if err != nil {
				return err
			}
			if i == 0 && n%r.stride() == 0 {
				fences, r.fences = le.AppendUint64(fences, p.Hash), append(r.fences, p.Hash)
			}
			le.PutUint64(page[16*i:], p.Hash)
			le.PutUint64(page[16*i+8:], uint64(p.At))
		}
		le.PutUint32(b[len(b)-4:], pageCRC(r.head[:seeded], n, page))
		if len(b) == cap(b) || n == r.pages()-1 {
			_, err = f.WriteAt(b, pageSize*(2+n)-int64(len(b)))
			b = b[:0]
		}
	}
	if err != nil {
		return err
	}
	h = le.AppendUint32(h, crc32c.Sum(fences))
	h = le.AppendUint32(h, crc32c.Sum(h))
	_, err = f.WriteAt(append(append(bytes.Clone(h), fences...), make([]byte, pageSize-headSize-len(fences))...), 0)
	return err
}

// merging yields the pairs of runs, and more, in order, one after the other. It holds one
// page of each run.
type merging struct {
	x       Index
	sources []*source // that have pairs left
	files   []vfs.File
}

// source is where pairs come from: a page of a run, and then the next, or just those in
// memory.
type source struct {
	pairs []Pair // next ones, in order; not empty
	r     *Run   // nil: there are no others
	f     vfs.File
	page  page
	buf   [perPage]Pair
}

// merge begins to merge runs and more pairs, which are sorted.
func (x Index) merge(rs []*Run, pairs []Pair) (*merging, error) {
	m := &merging{x: x}
	for _, r := range rs {
		f, err := x.open(r)
		if err != nil {
			return m, err
		}
		m.files = append(m.files, f)
		s := &source{r: r, f: f, page: page{n: -1}}
		if err := m.fill(s); err != nil {
			return m, err
		}
		if len(s.pairs) > 0 {
			m.sources = append(m.sources, s)
		}
	}
	if len(pairs) > 0 {
		m.sources = append(m.sources, &source{pairs: pairs})
	}
	return m, nil
}

func (m *merging) close() {
	for _, f := range m.files {
		_ = f.Close()
	}
}

// next returns the least pair that is left. The caller knows how many there are.
func (m *merging) next() (Pair, error) {
	least := 0
	for i := 1; i < len(m.sources); i++ {
		if m.sources[i].pairs[0].before(m.sources[least].pairs[0]) {
			least = i
		}
	}
	s := m.sources[least]
	now := s.pairs[0]
	if s.pairs = s.pairs[1:]; len(s.pairs) > 0 {
		return now, nil
	}
	err := m.fill(s)
	if len(s.pairs) == 0 {
		m.sources = slices.Delete(m.sources, least, least+1)
	} else if s.pairs[0].before(now) {
		err = m.damaged(s, errDamaged)
	}
	return now, err
}

// fill reads the next page of a source's run, if there is one. A run that is damaged is
// removed.
func (m *merging) fill(s *source) error {
	if s.r == nil || s.page.n == s.r.pages()-1 {
		return nil
	}
	if err := s.page.read(s.f, s.r, s.page.n+1); err != nil {
		return m.damaged(s, err)
	}
	s.pairs = s.buf[:s.page.len()]
	for i := range s.pairs {
		s.pairs[i] = Pair{s.page.hash(i), s.page.at(i)}
		if i > 0 && s.pairs[i].before(s.pairs[i-1]) {
			return m.damaged(s, errDamaged)
		}
	}
	return nil
}

func (m *merging) damaged(s *source, err error) error {
	m.x.Remove(s.r)
	return err
}

// Sort returns pairs in order. Hashes are spread evenly, so most of the way is one step, to
// the place that the first bits of the hash stand for.
func Sort(pairs []Pair) []Pair {
	if len(pairs) < 64 {
		slices.SortFunc(pairs, compare)
		return pairs
	}
	shift := 64 - (bits.Len(uint(len(pairs))) - 3) // about eight in each place
	ends := make([]int, 1<<(64-shift)+1)
	for _, p := range pairs {
		ends[p.Hash>>shift+1]++
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	out := make([]Pair, len(pairs))
	for _, p := range pairs {
		place := &ends[p.Hash>>shift]
		out[*place] = p
		*place++
	}
	begin := 0
	for _, end := range ends[:len(ends)-1] {
		slices.SortFunc(out[begin:end], compare)
		begin = end
	}
	return out
}
