package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// Plain is one JSONL file per session: flock, append, fdatasync, unlock.
var Plain = Candidate{Name: "plain", Setup: setupPlain, Open: openPlain, Check: checkPlain}

// plainLine is the length of a line, with its line break.
const plainLine = 1024

const plainTime = "2006-01-02T15:04:05.000000Z"

// plainTarget keeps its files open, so that opening them is not measured.
type plainTarget struct {
	files [][]plainFile // per goroutine, or for all of them in files[0]
	lines [][]byte      // one per goroutine
	tagAt int           // where in the line the text begins
}

type plainFile struct {
	*os.File
	// mu serialises the goroutines of this process that share the descriptor: flock
	// does not.
	mu *sync.Mutex
}

// PlainPath is where plain keeps the session with this number.
func PlainPath(j Job, i int) string {
	return filepath.Join(j.Dir, fmt.Sprintf("bench-%04d.jsonl", i))
}

func setupPlain(ctx context.Context, j Job) error {
	err := Parallel(ctx, 64, j.Sessions, func(i int) error {
		f, err := os.OpenFile(PlainPath(j, i), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Sync()
	})
	if err != nil {
		return err
	}
	return SyncDir(j.Dir)
}

// openPlain opens one descriptor per goroutine if there is one session, so that flock
// alone serialises them. For many sessions that would be too many descriptors: the
// goroutines share one per session, behind a mutex.
func openPlain(j Job) (Target, error) {
	t := &plainTarget{}
	sets := 1
	if j.Sessions == 1 {
		sets = j.Goroutines
	}
	for range sets {
		var files []plainFile
		for i := range j.Sessions {
			f, err := os.OpenFile(PlainPath(j, i), os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.files = append(t.files, files)
				return nil, errors.Join(err, t.Close())
			}
			files = append(files, plainFile{f, new(sync.Mutex)})
		}
		t.files = append(t.files, files)
	}
	head := fmt.Sprintf(`{"time":"%s","kind":"message","role":"user","data":"`, time.Now().UTC().Format(plainTime))
	t.tagAt = len(head)
	for range j.Goroutines {
		line := append([]byte(head), bytes.Repeat([]byte("x"), plainLine-len(head)-3)...)
		t.lines = append(t.lines, append(line, "\"}\n"...))
	}
	return t, nil
}

func (t *plainTarget) Append(_ context.Context, goroutine, session int, tag uint64) (uint64, error) {
	line := t.lines[goroutine]
	// Not into the line itself: AppendFormat may write past the end of its result.
	var stamp [40]byte
	copy(line[len(`{"time":"`):], time.Now().UTC().AppendFormat(stamp[:0], plainTime))
	PutTag(line[t.tagAt:], tag)
	f := t.files[goroutine%len(t.files)][session]
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := flock(f.File); err != nil {
		return 0, err
	}
	_, err := f.Write(line)
	if err == nil {
		err = Fdatasync(f.File)
	}
	if unlockErr := funlock(f.File); err == nil {
		err = unlockErr
	}
	return 0, err
}

func (t *plainTarget) Close() error {
	var first error
	for _, set := range t.files {
		for _, f := range set {
			if err := f.Close(); first == nil {
				first = err
			}
		}
	}
	return first
}

// checkPlain looks for every acknowledged event: whole, once, and no other.
func checkPlain(ctx context.Context, j Job, acks [][]Ack) error {
	return Parallel(ctx, runtime.NumCPU(), j.Sessions, func(i int) error {
		if err := checkPlainFile(PlainPath(j, i), acks[i]); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(PlainPath(j, i)), err)
		}
		return nil
	})
}

func checkPlainFile(path string, acks []Ack) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	missing := make(map[uint64]bool, len(acks))
	for _, a := range acks {
		missing[a.Tag] = true
	}
	mark := []byte(`"data":"`)
	for lines := bufio.NewReaderSize(f, 1<<20); ; {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil {
			return fmt.Errorf("torn line: %w", err)
		}
		_, text, ok := bytes.Cut(line, mark)
		tag, err := GetTag(text)
		if !ok || err != nil || !missing[tag] {
			return fmt.Errorf("an event is there twice or was not acknowledged")
		}
		delete(missing, tag)
	}
	if len(missing) > 0 {
		return fmt.Errorf("lost: %d acknowledged events are not there", len(missing))
	}
	return nil
}
