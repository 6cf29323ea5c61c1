package vfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"slices"
	"syscall"
	"testing"
)

// toy is the smallest engine that keeps a promise: a preallocated file of
// records, acknowledged when synced. Its variants leave out one thing each; the
// simulator is worth something if it catches all of them and not the toy.
type toy struct {
	noSync      bool // acknowledge without a sync
	noNameSync  bool // do not sync the directory
	noTempSync  bool // rename a file that is not synced
	reuseTemp   bool // write again over a temporary file whose sync failed
	retrySync   bool // call sync again after an error, and believe it
	trustOpened bool // believe a sync on a descriptor opened after an error, without writing again
	noLock      bool // append without a lock
}

const (
	toySize = 64 << 10
	toyHead = 8
)

var errToy = errors.New("toy: not acknowledged")

// open makes the file, or opens it.
func (y toy) open(fsys FS) (File, error) {
	if f, err := fsys.Open("ring", 0); err == nil {
		// Somebody else's rename may not be durable yet.
		if y.noNameSync {
			return f, nil
		}
		return f, fsys.SyncDir(".")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	lock, err := fsys.Open("make.lock", Create)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := lock.Lock(LockExclusive); err != nil {
		return nil, err
	}
	if _, _, err := fsys.Inode("ring"); err == nil {
		return y.open(fsys)
	}
	if !y.reuseTemp {
		// The sync of this one may have failed: rewriting it would not
		// help, it must be another file.
		if err := fsys.Remove("ring.tmp"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	f, err := fsys.Open("ring.tmp", Create)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, toySize), 0); err != nil {
		return nil, err
	}
	if !y.noTempSync {
		if err := f.Datasync(); err != nil {
			return nil, err
		}
	}
	if err := fsys.Rename("ring.tmp", "ring"); err != nil {
		return nil, err
	}
	return y.open(fsys)
}

// records reads up to the first invalid one, and gives its offset.
func records(f File) (l []string, end int64, err error) {
	b := make([]byte, toySize)
	if n, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return nil, 0, err
	} else if n < toySize {
		return nil, 0, fmt.Errorf("ring has %d bytes", n)
	}
	for {
		n := int(binary.LittleEndian.Uint32(b[end:]))
		if n == 0 || end+toyHead+int64(n) > toySize {
			return l, end, nil
		}
		body := b[end+toyHead:][:n]
		if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(b[end+4:]) {
			return l, end, nil
		}
		l = append(l, string(body))
		end += toyHead + int64(n)
	}
}

// add appends a record; nil is the acknowledgement.
func (y toy) add(f File, body string) error {
	if !y.noLock {
		if err := f.Lock(LockExclusive); err != nil {
			return err
		}
		defer func() { _ = f.Unlock() }()
	}
	_, end, err := records(f)
	if err != nil {
		return err
	}
	rec := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	rec = binary.LittleEndian.AppendUint32(rec, crc32.ChecksumIEEE([]byte(body)))
	rec = append(rec, body...)
	if !y.trustOpened && end > 0 {
		// What is before it may have been written by somebody whose
		// sync failed.
		b := make([]byte, end)
		if _, err := f.ReadAt(b, 0); err != nil {
			return err
		}
		if _, err := f.WriteAt(b, 0); err != nil {
			return err
		}
	}
	if _, err := f.WriteAt(rec, end); err != nil {
		return err
	}
	if y.noSync {
		return nil
	}
	err = f.Datasync()
	if err != nil && y.retrySync {
		err = f.Datasync()
	}
	return err
}

// work adds n records as one process, and calls acked with those that were
// acknowledged. After an error it opens again, as the next process would.
func (y toy) work(p *Proc, n int, acked func(string)) {
	for k := range n {
		f, err := y.open(p)
		if err == nil {
			body := fmt.Sprintf("%s-%d %0*d", p.Name(), k, 1200, k)
			if err = y.add(f, body); err == nil {
				acked(body)
			}
			err = errors.Join(err, f.Close())
		}
		if errors.Is(err, ErrCrashed) {
			return
		}
	}
}

// check opens what is left and looks for the acknowledged.
func (y toy) check(d *Disk, acked []string) error {
	if _, ok := d.CacheBytes("ring"); !ok {
		if len(acked) > 0 {
			return fmt.Errorf("no ring, and %d acknowledged: %w", len(acked), errToy)
		}
		return nil
	}
	f, err := d.Process("check").Open("ring", 0)
	if err != nil {
		return err
	}
	l, _, err := records(f)
	if err != nil {
		return err
	}
	for _, a := range acked {
		if !slices.Contains(l, a) {
			return fmt.Errorf("%.5s was acknowledged and is gone (%d records left): %w", a, len(l), errToy)
		}
	}
	return nil
}

// torture runs the toy with a fault and checks every power cut on the way. It
// gives the first violation and the number of states.
func (y toy) torture(seed uint64, fault func(*Disk)) (states int, bad error) {
	d := NewDisk(seed)
	d.PageSize = 512 // so that records have pages of their own
	fault(d)
	var acked []string
	var last uint64
	d.OnOp(func(o Op) {
		if bad != nil || d.Version() == last {
			return
		}
		last = d.Version()
		for _, keep := range []int{0, 30, 70, 100} {
			c := d.Clone()
			c.PowerCut(Cut{Keep: keep, Seed: seed ^ last})
			states++
			if err := y.check(c, acked); err != nil && bad == nil {
				bad = fmt.Errorf("seed %d, cut after %s, keeping %d %%: %w", seed, o, keep, err)
			}
		}
	})
	for _, name := range []string{"a", "b"} {
		p := d.Process(name)
		d.Go(p, func() { y.work(p, 3, func(s string) { acked = append(acked, s) }) })
	}
	if err := d.Run(); err != nil && bad == nil {
		bad = err
	}
	return states, bad
}

func TestToy(t *testing.T) {
	faults := map[string]func(*Disk){"": func(*Disk) {}}
	for k := 1; k < 8; k++ {
		faults[fmt.Sprint("sync error ", k)] = func(d *Disk) {
			d.Inject(Match{Kind: OpSync, N: k}, Fault{Err: syscall.EIO, Keep: 50})
		}
		faults[fmt.Sprint("kill ", k)] = func(d *Disk) { d.KillAt(Match{Proc: "a", N: 4 * k}, -1) }
		faults[fmt.Sprint("short write ", k)] = func(d *Disk) {
			d.Inject(Match{Kind: OpWrite, N: k}, Fault{Err: syscall.ENOSPC, Part: -1})
		}
	}
	for name, y := range map[string]toy{
		"":            {},
		"noSync":      {noSync: true},
		"noNameSync":  {noNameSync: true},
		"noTempSync":  {noTempSync: true},
		"reuseTemp":   {reuseTemp: true},
		"retrySync":   {retrySync: true},
		"trustOpened": {trustOpened: true},
		"noLock":      {noLock: true},
	} {
		t.Run("bug="+name, func(t *testing.T) {
			var first error
			total := 0
			for _, fname := range slices.Sorted(maps.Keys(faults)) {
				for seed := range uint64(5) {
					if name != "" && first != nil {
						break
					}
					states, bad := y.torture(seed, faults[fname])
					total += states
					if bad != nil && first == nil {
						first = fmt.Errorf("%s: %w", fname, bad)
					}
				}
			}
			switch {
			case name == "" && first != nil:
				t.Errorf("the correct toy failed: %v", first)
			case name != "" && first == nil:
				t.Errorf("not caught in %d states", total)
			}
			t.Logf("%d states; %v", total, first)
		})
	}
}
