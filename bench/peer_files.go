package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"

	"hansard"
	"hansard/filestore"
	"hansard/internal/bench"
)

// storeReader reads through a Store, whatever its engine.
type storeReader struct{ hansard.Store }

func readHansard(j bench.Job) (reader, error) {
	s, err := filestore.Open(j.Dir, bench.FileOptions(j))
	if err != nil {
		return nil, err
	}
	return storeReader{s}, nil
}

func (r storeReader) events(ctx context.Context, last int, each func(uint64)) error {
	for e, err := range r.Read(ctx, bench.SessionID(0), hansard.Range{Last: last}) {
		if err != nil {
			return err
		}
		each(uint64(e.Seq))
	}
	return nil
}

// plainReader reads lines; their numbers are their seqs.
type plainReader struct{ path string }

func readPlain(j bench.Job) (reader, error) { return plainReader{bench.PlainPath(j, 0)}, nil }

func (plainReader) Close() error { return nil }

func (r plainReader) events(_ context.Context, last int, each func(uint64)) error {
	f, err := os.Open(r.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	seq := uint64(0)
	if last > 0 {
		// The lines are of one length here. Others would look for them from the end.
		from := max(0, info.Size()-int64(last*documentBytes))
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			return err
		}
		seq = uint64(from / documentBytes)
	}
	for lines := bufio.NewReaderSize(f, 1<<16); ; {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		var d document
		if err := json.Unmarshal(bytes.TrimSpace(line), &d); err != nil {
			return err
		}
		seq++
		each(seq)
	}
}
