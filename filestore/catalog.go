package filestore

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"io"

	"hansard/internal/vfs"
)

// The catalog is kept in cache/catalog between processes, so that listing a
// hundred thousand sessions does not open a hundred thousand files. It is a
// cache: checked against the directory, replaced whole, and ignored when
// anything about it is wrong.

const catalogName = "catalog"

var catalogMagic = []byte("HANSCAT1")

func (s *Store) loadCatalog() {
	c := &s.catalog
	if c.loaded {
		return
	}
	c.loaded = true
	f, err := s.fs.Open(cacheDir+"/"+catalogName, vfs.ReadOnly)
	if err != nil {
		return
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil || size < int64(len(catalogMagic))+4 {
		return
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return
	}
	body, ok := bytes.CutPrefix(b, catalogMagic)
	if !ok || binary.BigEndian.Uint32(body) != checksum(body[4:]) {
		return
	}
	m := map[string]catalogEntry{}
	if gob.NewDecoder(bytes.NewReader(body[4:])).Decode(&m) == nil {
		c.m = m
	}
}

func (s *Store) saveCatalog() {
	var buf bytes.Buffer
	if gob.NewEncoder(&buf).Encode(s.catalog.m) != nil {
		return
	}
	head := binary.BigEndian.AppendUint32(bytes.Clone(catalogMagic), checksum(buf.Bytes()))
	_ = s.writeCache(cacheDir, catalogName, append(head, buf.Bytes()...)) // a cache
}
