// Package runs finds names in a log without reading it, and without keeping them in
// memory: an index of (hash, offset) pairs in files, the runs. Each covers a stretch of the
// log; together they cover it from its start, without a gap:
//
//	log   |--------------------------|-------------|------|~~~~~~~~~~~> grows
//	      0      run 0               a   run a     b run b c   not indexed here
//
// A run is found by where its stretch begins, and its head tells where the next one does.
// So no list of runs is kept that could disagree with them, and one rename puts a run in
// the place of those that were merged into it: what is left of them is not reached from
// the start, and whoever removes too much only shortens what is covered.
//
// Runs are derived from the log, and may have been written by anybody. One is believed if
// it is whole, by checksums, and fits the log; what is not covered is read from the log.
// A name that is missing here is stored a second time, so nothing is ever guessed: a look
// gives every offset there is, or an error.
//
// What a name is, and which line has it, is the caller's: a hash is only a hint.
package runs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/dchest/siphash"

	"hansard/filestore/internal/crc32c"
	"hansard/internal/vfs"
)

// A run is a head, with the first hash of some pages, and pages of pairs, sorted. All
// numbers are little-endian; every page but the last is full.
//
//	head  magic | uid u64 | from u64 | upTo u64 | crc u32 of the line that ends at from | and at upTo |
//	      pairs u64 | crc u32 of the fences | crc u32 of the head before it | fences u64 … | zeros up to 4 KiB
//	page  255 pairs (hash u64, offset u64) | zeros | crc u32 of the head up to pairs, the page's number u64 and the page
const (
	pageSize  = 4 << 10
	perPage   = 255
	seeded    = 48 // bytes of the head that the checksum of a page begins with
	headSize  = 56
	maxFences = 256
	// maxRuns is more than merging leaves, see Add.
	maxRuns = 64
	// minStretch is less log than any name takes: a run with more pairs is not ours, and
	// reading it could take for ever.
	minStretch = 32
)

// Magic begins every run. Another layout gets another last digit, and older programs
// ignore it.
const Magic = "HANSRUN2"

// ErrChanged is returned by a look into a run if the file can't be opened any more, or is
// another run by now: another process merged it. Load finds what is there instead. Any
// other error means that the run is damaged, see Remove.
var ErrChanged = errors.New("the run was replaced")

// errDamaged is a run that is not as it was written.
var errDamaged = errors.New("the run is damaged")

var le = binary.LittleEndian

// Name is what is looked up. Names of different kinds are different names.
type Name struct {
	Kind byte
	Text string
}

// Hash is what a name is sorted by. It is spread evenly over all names that people use: pages
// are found by it. Collisions are possible. The kind is in the key, which is no secret:
// whoever takes the trouble to find names that collide slows down look-ups in its own session.
func (n Name) Hash() uint64 {
	var b [256]byte // as long as names are
	return siphash.Hash(hashKey, uint64(n.Kind), append(b[:0], n.Text...))
}

// hashKey is the first half of the key, "hansard." as a number.
const hashKey = 0x2e647261736e6168

// Pair is a name's hash and where its line begins in the log.
type Pair struct {
	Hash uint64
	At   int64
}

// before reports whether a pair comes before another in a run.
func (p Pair) before(o Pair) bool { return p.Hash < o.Hash || p.Hash == o.Hash && p.At < o.At }

func compare(a, b Pair) int { return cmp.Or(cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.At, b.At)) }

// Run is a run as its head describes it. It does not change.
type Run struct {
	From, UpTo int64 // the stretch of log
	Pairs      int64
	crc        [2]uint32 // of the lines that end at From and UpTo
	head       [headSize]byte
	fences     []uint64 // the first hash of every stride-th page
}

// Weight is about how many bytes it takes in memory.
func (r *Run) Weight() int64 { return int64(192 + 8*len(r.fences)) }

func (r *Run) pages() int64 { return (r.Pairs + perPage - 1) / perPage }

// stride is how many pages a fence stands for.
func (r *Run) stride() int64 { return max(1, (r.pages()+maxFences-1)/maxFences) }

// End is where runs end, and the crc of the line that ends there.
func End(rs []*Run) (upTo int64, crc uint32) {
	if len(rs) == 0 {
		return 0, 0
	}
	last := rs[len(rs)-1]
	return last.UpTo, last.crc[1]
}

// Index is where the runs of one log are: in files whose names begin with Path.
type Index struct {
	FS   vfs.FS
	Path string
	UID  uint64 // of the log
}

// File is the name of the run whose stretch begins at from.
func (x Index) File(from int64) string { return fmt.Sprintf("%s.%016x", x.Path, from) }

// Load returns the runs that can be believed: those that follow each other from the start
// of a log of size bytes, up to the last one that ends where the log has a line with the
// same crc. fits says whether it has. Every line's crc stands for all lines before it.
func (x Index) Load(size int64, fits func(upTo int64, crc uint32) bool) (rs []*Run) {
	for len(rs) < maxRuns {
		r := x.load(End(rs))
		if r == nil || r.UpTo > size {
			break
		}
		rs = append(rs, r)
	}
	for len(rs) > 0 && !fits(End(rs)) {
		rs = rs[:len(rs)-1]
	}
	return rs
}

// load reads the head of the run that begins at from, behind a line with that crc; nil:
// there is none that is sound.
func (x Index) load(from int64, crc uint32) *Run {
	f, err := x.FS.Open(x.File(from), vfs.ReadOnly)
	if err != nil {
		return nil
	}
	defer f.Close()
	r := &Run{}
	if _, err := f.ReadAt(r.head[:], 0); err != nil && err != io.EOF {
		return nil
	}
	h := r.head[:]
	r.From, r.UpTo, r.Pairs = int64(le.Uint64(h[16:])), int64(le.Uint64(h[24:])), int64(le.Uint64(h[40:]))
	r.crc = [2]uint32{le.Uint32(h[32:]), le.Uint32(h[36:])}
	size, err := f.Size()
	if err != nil || string(h[:8]) != Magic || le.Uint64(h[8:]) != x.UID || le.Uint32(h[52:]) != crc32c.Sum(h[:52]) ||
		r.From != from || r.crc[0] != crc || r.UpTo <= from ||
		r.Pairs < 0 || r.Pairs > (r.UpTo-from)/minStretch || size != pageSize*(1+r.pages()) {
		return nil
	}
	b := make([]byte, 8*((r.pages()+r.stride()-1)/r.stride()))
	if _, err := f.ReadAt(b, headSize); err != nil && err != io.EOF || crc32c.Sum(b) != le.Uint32(h[48:]) {
		return nil
	}
	for ; len(b) > 0; b = b[8:] {
		r.fences = append(r.fences, le.Uint64(b))
	}
	return r
}

// open opens a run to look into it. It may have another name's content by now.
func (x Index) open(r *Run) (vfs.File, error) {
	f, err := x.FS.Open(x.File(r.From), vfs.ReadOnly)
	if err != nil {
		return nil, ErrChanged // also if there are too many open files: it is not damaged
	}
	var head [headSize]byte
	if _, err = f.ReadAt(head[:], 0); err == nil && head != r.head {
		err = ErrChanged
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Remove removes a run that turned out to be damaged, or to lead nowhere: the next Load
// ends before it, and the log is read from there.
func (x Index) Remove(r *Run) { _ = x.FS.Remove(x.File(r.From)) }

// Sweep removes runs, of those that begin at from, that no look reaches because another one
// covers where they begin: what is left if a process dies between putting a merged run in
// place and removing those that it merged. It may run at any time, beside anybody: the
// worst is that too much is removed, which shortens what is covered.
func (x Index) Sweep(from []int64) {
	upTo, crc := int64(0), uint32(0)
	for range maxRuns {
		r := x.load(upTo, crc)
		if r == nil {
			return // it ends here, or can't be opened just now
		}
		for _, f := range from {
			if r.From < f && f < r.UpTo {
				_ = x.FS.Remove(x.File(f))
			}
		}
		upTo, crc = r.UpTo, r.crc[1]
	}
}

// page is one page of a run, checked.
type page struct {
	n     int64 // its number; -1: none was read
	pairs []byte
	buf   [pageSize]byte
}

func (p *page) hash(i int) uint64 { return le.Uint64(p.pairs[16*i:]) }
func (p *page) at(i int) int64    { return int64(le.Uint64(p.pairs[16*i+8:])) }
func (p *page) len() int          { return len(p.pairs) / 16 }

// read reads a page, unless it is the one that was read last.
func (p *page) read(f vfs.File, r *Run, n int64) error {
	if p.n == n {
		return nil
	}
	p.n = -1
	if _, err := f.ReadAt(p.buf[:], pageSize*(1+n)); err != nil {
		return err
	}
	if le.Uint32(p.buf[pageSize-4:]) != pageCRC(r.head[:seeded], n, p.buf[:]) {
		return errDamaged
	}
	p.n, p.pairs = n, p.buf[:16*min(perPage, r.Pairs-perPage*n)]
	return nil
}

// pageCRC is the checksum of a page: it fits no other place, and no other run.
func pageCRC(seed []byte, n int64, b []byte) uint32 {
	return crc32c.Add(crc32c.Add(crc32c.Sum(seed), le.AppendUint64(nil, uint64(n))), b[:pageSize-4])
}

// Find finds the offsets that a run has for hashes, which are in order: found is called
// with the number of the hash. On error it may have been called for some. About one page is
// read for a hash, and none twice for those that are close.
func (x Index) Find(r *Run, hashes []uint64, found func(i int, at int64)) error {
	if len(hashes) == 0 || r.Pairs == 0 {
		return nil
	}
	f, err := x.open(r)
	if err != nil {
		return err
	}
	defer f.Close()
	p := page{n: -1}
	for i, h := range hashes {
		n := r.guess(h)
		// To the left while there may be one in the page before, then all to the right.
		err := p.read(f, r, n)
		for err == nil && n > 0 && h <= p.hash(0) {
			n--
			err = p.read(f, r, n)
		}
		for ; err == nil && n < r.pages(); n++ {
			if err = p.read(f, r, n); err != nil {
				break
			}
			at := sort.Search(p.len(), func(j int) bool { return p.hash(j) >= h })
			for ; at < p.len() && p.hash(at) == h; at++ {
				found(i, p.at(at))
			}
			if at < p.len() {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Each calls add with every hash that a run has.
func (x Index) Each(r *Run, add func(hash uint64)) error {
	f, err := x.open(r)
	if err != nil {
		return err
	}
	defer f.Close()
	p := page{n: -1}
	for n := range r.pages() {
		if err := p.read(f, r, n); err != nil {
			return err
		}
		for i := range p.len() {
			add(p.hash(i))
		}
	}
	return nil
}

// guess is the page a hash is in, or one that is close: between two fences the hashes are
// spread evenly.
func (r *Run) guess(h uint64) int64 {
	next := sort.Search(len(r.fences), func(i int) bool { return r.fences[i] >= h })
	if next == 0 {
		return 0
	}
	low, high := r.fences[next-1], uint64(math.MaxUint64)
	if next < len(r.fences) {
		high = r.fences[next]
	}
	begin := int64(next-1) * r.stride()
	n := min(r.stride(), r.pages()-begin)
	return begin + min(n-1, int64(float64(h-low)/float64(high-low)*float64(n)))
}

// Put writes a file whole, or not at all. It need not be durable: what is read is checked.
type Put func(name string, fill func(vfs.File) error) error

// Add writes a run for what the log got from the end of the runs up to upTo, where a line
// with this crc ends, and returns the runs there are then. It merges the last ones that are
// of its size, by powers of two: so each is of a lower power than the one before, there are
// few, and a pair is written as often as its run has doubled. On error the runs are as they
// were, and a damaged one among them was removed.
func (x Index) Add(rs []*Run, pairs []Pair, upTo int64, crc uint32, put Put) ([]*Run, error) {
	pairs = Sort(pairs)
	r, keep := &Run{UpTo: upTo, Pairs: int64(len(pairs))}, len(rs)
	for keep > 0 && (keep >= maxRuns || bits.Len64(uint64(rs[keep-1].Pairs)) <= bits.Len64(uint64(r.Pairs))) {
		keep--
		r.Pairs += rs[keep].Pairs
	}
	r.From, r.crc[0] = End(rs[:keep])
	r.crc[1] = crc
	err := put(x.File(r.From), func(f vfs.File) error { return x.write(f, r, rs[keep:], pairs) })
	if err != nil {
		return rs, err
	}
	for _, merged := range rs[keep:] {
		if merged.From != r.From {
			x.Remove(merged)
		}
	}
	return append(slices.Clone(rs[:keep]), r), nil
}
