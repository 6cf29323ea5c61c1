package cache

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"strings"
	"time"

	"hansard"
	"hansard/filestore/internal/crc32c"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// The catalog is kept in cache/catalog between processes, so that listing a
// hundred thousand sessions does not open a hundred thousand files. It is a cache: checked
// against the directory, replaced as a whole, and ignored if anything about it is wrong. It
// may have been written from outside, so reading it never takes more memory than the
// directory accounts for: its length is compared with the number of logs first, and it is
// read line by line, as JSON, which takes no more memory than the file has bytes.
//
//	"HANSCAT2" | CRC-32C of the rest (4 bytes) | lines of {"name":…,"entry":{…}}

const (
	CatalogName = "catalog"
	// maxCatalogEntry bounds the entry of one session: its title, its labels, a small state
	// and the holder of its turn, with every byte escaped.
	maxCatalogEntry = 6*(4<<10+64*2*256+MaxListedState+4<<10) + 4<<10
)

var CatalogMagic = []byte("HANSCAT2")

type Entry struct {
	Inode   uint64
	Size    int64
	ModTime time.Time
	Info    hansard.Info // without its state if that is large: see lister.complete
	Gone    bool         // deleted, or not a session yet
}

// catalogLine is one entry in the file.
type catalogLine struct {
	Name  string `json:"name"`
	Entry Entry  `json:"entry"`
}

// LoadCatalog reads the catalog's entries for existing logs. Nil: there is no catalog, or
// something about it is wrong.
func LoadCatalog(fsys vfs.FS, logs []vfs.Entry) map[string]Entry {
	f, err := fsys.Open(Dir+"/"+CatalogName, vfs.ReadOnly)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := int64(len(CatalogMagic)) + 4
	size, err := f.Size()
	if err != nil || size < head || size > head+int64(len(logs)+catalogSlack)*maxCatalogEntry {
		return nil
	}
	begin := make([]byte, head)
	if _, err := f.ReadAt(begin, 0); err != nil || !bytes.HasPrefix(begin, CatalogMagic) {
		return nil
	}
	want := binary.BigEndian.Uint32(begin[len(CatalogMagic):])
	there := make(map[string]bool, len(logs))
	for _, e := range logs {
		there[strings.TrimSuffix(e.Name, sessionlog.Suffix)] = true
	}
	m, crc, ok := readCatalog(io.NewSectionReader(f, head, size-head), there)
	if !ok || crc != want {
		return nil
	}
	return m
}

// catalogChunk is how much of a catalog is read at once.
const catalogChunk = 256 << 10

// catalogSlack is how many entries a catalog may contain for logs that no longer exist.
const catalogSlack = 1024

// readCatalog reads the lines about existing logs.
func readCatalog(r io.Reader, there map[string]bool) (m map[string]Entry, crc uint32, ok bool) {
	m = map[string]Entry{}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, catalogChunk), maxCatalogEntry)
	for lines.Scan() {
		crc = crc32c.Add(crc32c.Add(crc, lines.Bytes()), []byte{'\n'})
		var l catalogLine
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			return nil, 0, false
		}
		if there[l.Name] {
			m[l.Name] = l.Entry
		}
	}
	return m, crc, lines.Err() == nil
}

// EncodeCatalog is the content of a catalog file.
func EncodeCatalog(m map[string]Entry) []byte {
	var body bytes.Buffer
	for name, entry := range m {
		body.Write(sessionlog.Marshal(catalogLine{Name: name, Entry: entry}))
		body.WriteByte('\n')
	}
	head := binary.BigEndian.AppendUint32(bytes.Clone(CatalogMagic), crc32c.Sum(body.Bytes()))
	return append(head, body.Bytes()...)
}

// MaxListedState is the largest state document that the catalog remembers. With larger ones
// a single list would hold the state of all sessions in memory.
const MaxListedState = 4 << 10
