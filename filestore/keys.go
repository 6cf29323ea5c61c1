package filestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"sort"
	"sync"

	"hansard"
	"hansard/internal/vfs"
)

// Idempotency keys live in the log, for the life of the session. To find one
// without reading the log there is an index beside it, derived like everything
// in cache/: a sorted table of key hashes for the beginning of the log, in
// cache/keys, and a map in memory for the rest.

const (
	cacheDir = "cache"
	keysDir  = cacheDir + "/keys"
	// keysInMemory is how many keys the map takes before the table is
	// written anew. A fresh process reads the log from where the table ends,
	// so this also bounds what a first append with a key has to read.
	keysInMemory = 1024
	keyTableHead = 48
)

var keyTableMagic = [8]byte{'H', 'A', 'N', 'S', 'K', 'E', 'Y', '1'}

// keySeen is where a key was used and for what content.
type keySeen struct {
	hash        string
	first, last hansard.Seq
}

// keyIndex finds the keys of one log, up to upTo. What is not in the log yet is
// the caller's to look at.
type keyIndex struct {
	mu    sync.Mutex
	uid   uint64
	inode uint64
	upTo  int64            // behind a line that ends its batch
	crc   uint32           // of that line
	tail  map[string]int64 // key → where its line begins
	table []byte           // sorted (hash, offset) pairs of 16 bytes
}

// keyIndexes are the indexes of the sessions that were written to with keys.
type keyIndexes struct {
	mu sync.Mutex
	m  map[string]*keyIndex
}

func (k *keyIndexes) get(name string) *keyIndex {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.m == nil || len(k.m) > maxSessions {
		k.m = map[string]*keyIndex{}
	}
	if k.m[name] == nil {
		k.m[name] = &keyIndex{}
	}
	return k.m[name]
}

// prepareKeys brings a session's index up to the end of its log, before any
// lock is taken: the first time this may read much.
func (s *Store) prepareKeys(name string) error {
	f, err := s.fs.Open(logPath(name), vfs.ReadOnly)
	if err != nil {
		return nil // no log: no keys; what is wrong with it shows under the lock
	}
	defer f.Close()
	k := s.keys.get(name)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.advance(s, name, f); err != nil {
		return err
	}
	if len(k.tail) >= keysInMemory {
		k.save(s, name, f)
	}
	return nil
}

// lookupKey finds a key in a session, under write.lock; nil: it was not used.
func (s *Store) lookupKey(sess *session, key string) (*keySeen, error) {
	if d := sess.draft; d != nil {
		if seen, ok := d.keys[key]; ok {
			return &seen, nil
		}
	}
	for _, e := range s.pending {
		if e.name != sess.name {
			continue
		}
		if e.keys == nil {
			e.keys = keysOf(e.bytes)
		}
		if seen, ok := e.keys[key]; ok {
			return &seen, nil
		}
	}
	if sess.f == nil {
		return nil, nil
	}
	k := s.keys.get(sess.name)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.advance(s, sess.name, sess.f); err != nil {
		return nil, err
	}
	return k.find(sess.f, key)
}

// keysOf are the keys in some lines.
func keysOf(lines []byte) map[string]keySeen {
	keys := map[string]keySeen{}
	for len(lines) > 0 {
		i := bytes.IndexByte(lines, '\n')
		if i < 0 {
			break
		}
		if hasKey(lines[:i]) {
			if l, err := decodeLine(lines[:i]); err == nil && l.Key != "" {
				keys[l.Key] = l.keySeen()
			}
		}
		lines = lines[i+1:]
	}
	return keys
}

// hasKey is a quick look; content may contain the same bytes.
func hasKey(line []byte) bool { return bytes.Contains(line, []byte(`,"key":"`)) }

func (l *line) keySeen() keySeen {
	return keySeen{hash: l.Hash, first: l.Seq, last: l.Seq + hansard.Seq(l.Left)}
}

// advance reads what the log has beyond the index.
func (k *keyIndex) advance(s *Store, name string, f vfs.File) error {
	inode, err := f.Inode()
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	if k.tail == nil || k.inode != inode || size < k.upTo || !k.matches(f) {
		uid, err := readUID(f)
		if err != nil {
			return err
		}
		k.uid, k.inode, k.upTo, k.crc = uid, inode, 0, 0
		k.tail, k.table = map[string]int64{}, nil
		k.load(s, name, f, size)
	}
	sc := newScanner(f, k.upTo)
	var batch []string // keys of the batch being read, with their offsets
	var offs []int64
	for {
		b, at, err := sc.next()
		if errors.Is(err, errNoLine) {
			return nil
		}
		if err != nil {
			return err
		}
		l, err := quickLine(b)
		if err != nil {
			// What is behind it can't be looked up: a key there would be
			// stored a second time.
			id, _ := decodeName(name)
			_, d, readErr := checkLog(f, id, quickLine)
			if d == nil {
				return errors.Join(err, readErr)
			}
			s.foundDamage(name, inode, d)
			return d
		}
		if l.Key != "" {
			batch, offs = append(batch, l.Key), append(offs, at)
		}
		if l.Left == 0 {
			for i, key := range batch {
				k.tail[key] = offs[i]
			}
			batch, offs = batch[:0], offs[:0]
			k.upTo, k.crc = sc.at, l.crc
		}
	}
}

// matches tells whether the log still is what was indexed.
func (k *keyIndex) matches(f vfs.File) bool {
	if k.upTo == 0 {
		return true
	}
	crc, err := crcBefore(f, k.upTo)
	return err == nil && crc == k.crc
}

// find looks a key up in what is indexed.
func (k *keyIndex) find(f vfs.File, key string) (*keySeen, error) {
	if at, ok := k.tail[key]; ok {
		l, err := decodeLineAt(f, at)
		if err != nil {
			return nil, err
		}
		seen := l.keySeen()
		return &seen, nil
	}
	h := keyHash(key)
	n := len(k.table) / 16
	hashAt := func(i int) uint64 { return binary.BigEndian.Uint64(k.table[16*i:]) }
	for i := sort.Search(n, func(i int) bool { return hashAt(i) >= h }); i < n && hashAt(i) == h; i++ {
		l, err := decodeLineAt(f, int64(binary.BigEndian.Uint64(k.table[16*i+8:])))
		if err != nil {
			return nil, err
		}
		if l.Key == key {
			seen := l.keySeen()
			return &seen, nil
		}
	}
	return nil, nil
}

func keyHash(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return h.Sum64()
}

// load reads the table of a log's beginning, if there is one that fits. It is
// believed only whole: a key that it forgot would be stored twice.
func (k *keyIndex) load(s *Store, name string, log vfs.File, size int64) {
	f, err := s.fs.Open(keysDir+"/"+name, vfs.ReadOnly)
	if err != nil {
		return
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil || n < keyTableHead || (n-keyTableHead)%16 != 0 {
		return
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return
	}
	be := binary.BigEndian
	upTo, crc := int64(be.Uint64(b[16:])), be.Uint32(b[24:])
	if [8]byte(b[:8]) != keyTableMagic || be.Uint64(b[8:]) != k.uid || be.Uint64(b[32:]) != uint64((n-keyTableHead)/16) ||
		be.Uint32(b[40:]) != checksum(b[keyTableHead:]) || be.Uint32(b[44:]) != checksum(b[:44]) || upTo > size {
		return
	}
	if got, err := crcBefore(log, upTo); err != nil || got != crc {
		return
	}
	k.upTo, k.crc, k.table = upTo, crc, b[keyTableHead:]
}

// save writes the table anew, with what is in memory. It is a cache: what fails
// here costs time later, nothing else.
func (k *keyIndex) save(s *Store, name string, log vfs.File) {
	table := append(make([]byte, 0, len(k.table)+16*len(k.tail)), k.table...)
	for key, at := range k.tail {
		table = binary.BigEndian.AppendUint64(table, keyHash(key))
		table = binary.BigEndian.AppendUint64(table, uint64(at))
	}
	pairs := make([][16]byte, len(table)/16)
	for i := range pairs {
		pairs[i] = [16]byte(table[16*i:])
	}
	sort.Slice(pairs, func(i, j int) bool { return bytes.Compare(pairs[i][:], pairs[j][:]) < 0 })
	for i := range pairs {
		copy(table[16*i:], pairs[i][:])
	}
	be := binary.BigEndian
	head := make([]byte, keyTableHead)
	copy(head, keyTableMagic[:])
	be.PutUint64(head[8:], k.uid)
	be.PutUint64(head[16:], uint64(k.upTo))
	be.PutUint32(head[24:], k.crc)
	be.PutUint64(head[32:], uint64(len(pairs)))
	be.PutUint32(head[40:], checksum(table))
	be.PutUint32(head[44:], checksum(head[:44]))
	k.table, k.tail = table, map[string]int64{}
	_ = s.writeCache(keysDir, name, append(head, table...))
}
