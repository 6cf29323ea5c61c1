package backup

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"hansard"
	"hansard/memstore"
)

// counted counts what is read of a file.
type counted struct {
	io.ReaderAt
	bytes atomic.Int64
}

func (c *counted) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, at)
	c.bytes.Add(int64(n))
	return n, err
}

// TestOneSessionAlone: to restore one session the others are not read, in the full backup and
// in the increment; what comes of it is the session.
func TestOneSessionAlone(t *testing.T) {
	ctx := context.Background()
	src := memstore.New()
	defer src.Close()
	random := rand.New(rand.NewPCG(1, 2))
	id := func(i int) hansard.SessionID { return hansard.SessionID(fmt.Sprintf("s%04d", i)) }
	const sessions = 400
	fill := func(i int) {
		t.Helper()
		data := fmt.Appendf(nil, `"%s"`, fmt.Sprintf("%016x", random.Uint64())) // does not compress
		for range 9 {
			data = fmt.Appendf(data[:len(data)-1], `%016x%016x%016x%016x"`, random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64())
		}
		for range 20 {
			if _, err := src.Append(ctx, id(i), hansard.Batch{Create: true, Events: []hansard.Event{{Data: data}}}); err != nil {
				t.Fatal(err)
			}
		}
		if i%20 > 0 { // many sessions begin in one block
			return
		}
		a, err := src.Attach(ctx, id(i), bytes.NewReader(data))
		if err == nil {
			_, err = src.Append(ctx, id(i), hansard.Batch{Events: []hansard.Event{{Data: data, Attachments: []hansard.Attachment{a}}}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var files []*File
	var reads []*counted
	var size int64
	for n := range 2 {
		for i := range sessions {
			fill(i)
		}
		var out bytes.Buffer
		o := WriteOptions{}
		if n > 0 {
			o.Base = files[0]
		}
		if _, err := Write(ctx, src, &out, o); err != nil {
			t.Fatal(err)
		}
		c := &counted{ReaderAt: bytes.NewReader(out.Bytes())}
		f, err := newFile(fmt.Sprint(n), c, int64(out.Len()))
		if err != nil {
			t.Fatal(err)
		}
		files, reads, size = append(files, f), append(reads, c), size+f.size
	}
	chain := &Chain{files: files}
	for _, want := range [][]hansard.SessionID{{id(0)}, {id(sessions / 2)}, {id(sessions - 1), id(7), id(8), "nobody"}} {
		for _, c := range reads {
			c.bytes.Store(0)
		}
		dst := memstore.New()
		reports := 0
		err := chain.Restore(ctx, dst, RestoreOptions{Sessions: want, Report: func(r Restored) {
			if reports++; r.Err != nil {
				t.Errorf("%s: %v", r.Session, r.Err)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		read := reads[0].bytes.Load() + reads[1].bytes.Load()
		t.Logf("%v: %d of %d bytes were read", want, read, size)
		if read > size/3 {
			t.Errorf("%v: %d of %d bytes were read", want, read, size)
		}
		got := 0
		for info, err := range dst.List(ctx, hansard.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			got++
			if info.LastSeq < 40 {
				t.Errorf("%s has %d events", info.ID, info.LastSeq)
			}
		}
		if known := min(len(want), 3); got != known || reports == 0 {
			t.Errorf("%v: %d sessions, want %d; %d reports", want, got, known, reports)
		}
		for c, err := range hansard.Copy(ctx, dst, src) { // which compares both
			if err != nil || c.Err != nil || c.Added > 0 {
				t.Errorf("%s: %v, %v, %d added", c.Session, err, c.Err, c.Added)
			}
		}
		_ = dst.Close()
	}
}
