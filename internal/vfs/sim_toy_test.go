package vfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
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
func (y toy) torture(seed uint64, fault func(*Disk)) (bad error, states int) {
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
	return bad, states
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
					bad, states := y.torture(seed, faults[fname])
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

// The same calls on the operating system and on the simulated disk have the same
// outcomes, as long as nothing crashes.
func TestSimIsLikeTheOS(t *testing.T) {
	for seed := range uint64(50) {
		o, _ := openTemp(t)
		d := NewDisk(seed)
		d.PageSize = 512
		d.Writeback = 10
		compare(t, seed, o, d.Process("a"))
		if t.Failed() {
			return
		}
	}
}

// compare does random calls on two file systems.
func compare(t *testing.T, seed uint64, a, b FS) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	names := []string{"x", "y", "dir/x", "dir/y", "dir", "none/x", "x/y", "../x", ".", ""}
	var open [][2]File
	defer func() {
		for _, f := range open {
			_ = f[0].Close()
		}
	}()
	for n := range 400 {
		name := names[r.IntN(len(names))]
		to := names[r.IntN(len(names))]
		var f [2]File
		if len(open) > 0 {
			f = open[r.IntN(len(open))]
		}
		op := r.IntN(16)
		off, size := int64(r.IntN(1500)), 1+r.IntN(1500)
		flags := Flag(r.IntN(8))
		data := make([]byte, size)
		for k := range data {
			data[k] = byte(r.IntN(256))
		}
		one := func(fsys FS, side int) string {
			if op < 0 || op >= 7 && f[side] == nil {
				return ""
			}
			switch op {
			case 0, 1:
				g, err := fsys.Open(name, flags)
				f[side] = g
				return outcome(err)
			case 2:
				return outcome(fsys.Mkdir(name))
			case 3:
				for _, n := range []string{name, to} {
					if st, err := a.Stat(n); side == 0 && err == nil && st.Mode.IsDir() {
						op = -1 // directories can't be renamed in the simulation
					}
				}
				if op < 0 {
					return ""
				}
				return outcome(fsys.Rename(name, to))
			case 4:
				return outcome(fsys.Remove(name))
			case 5:
				l, err := fsys.ReadDir(name)
				slices.SortFunc(l, func(a, b Entry) int { return len(a.Name) - len(b.Name) + int(a.Name[0]) - int(b.Name[0]) })
				return fmt.Sprint(l, outcome(err))
			case 6:
				st, err := fsys.Stat(name)
				if st.Mode.IsDir() {
					st.Size = 0
				}
				if name == "." {
					st.Mode = 0
				}
				return fmt.Sprint(st.Size, st.Mode, outcome(err), outcome(fsys.SyncDir(name)))
			case 7:
				buf := make([]byte, size)
				n, err := f[side].ReadAt(buf, off)
				return fmt.Sprint(n, crc32.ChecksumIEEE(buf[:n]), outcome(err))
			case 8, 9:
				_, err := f[side].WriteAt(data, off)
				return outcome(err)
			case 10:
				return outcome(f[side].Truncate(off))
			case 11:
				n, err := f[side].Size()
				return fmt.Sprint(n, outcome(err))
			case 12:
				return outcome(f[side].Datasync())
			case 13:
				got, err := f[side].TryLock(LockMode(size % 2))
				return fmt.Sprint(got, outcome(err))
			case 14:
				return outcome(f[side].Unlock())
			}
			if size%3 > 0 { // not too often
				return ""
			}
			return outcome(f[side].Close())
		}
		ra, rb := one(a, 0), one(b, 1)
		if ra != rb {
			t.Errorf("seed %d, call %d, kind %d on %q, %q (flags %d, off %d, len %d): the OS says %s, the simulation %s", seed, n, op, name, to, flags, off, size, ra, rb)
			return
		}
		if op <= 1 && f[0] != nil {
			open = append(open, f)
		}
	}
}

// outcome is the class of an error.
func outcome(err error) string {
	for _, e := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrInvalid, fs.ErrClosed, io.EOF, errIsDir, errNotDir} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	if err != nil {
		return "error"
	}
	return "ok"
}

func BenchmarkCrashState(b *testing.B) {
	d := NewDisk(1)
	p := d.Process("a")
	f, err := toy{}.open(p)
	if err != nil {
		b.Fatal(err)
	}
	for k := range 20 {
		g, err := p.Open(fmt.Sprint("file", k), Create)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := g.WriteAt(make([]byte, 5000), 0); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := f.WriteAt(make([]byte, 20_000), 1000); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		c := d.Clone()
		c.PowerCut(Cut{Keep: 50, Seed: uint64(n)})
	}
}

func BenchmarkOp(b *testing.B) {
	for _, procs := range []int{0, 1, 2} {
		b.Run(fmt.Sprint("procs=", procs), func(b *testing.B) {
			d := NewDisk(1)
			d.MaxOps = 1 << 60
			buf := make([]byte, 200)
			loop := func(p *Proc, n int) {
				f, err := p.Open("f", Create)
				if err != nil {
					b.Error(err)
					return
				}
				for k := range n {
					if _, err := f.WriteAt(buf, int64(k%300)*200); err != nil {
						b.Error(err)
						return
					}
				}
			}
			b.ReportAllocs()
			if procs == 0 {
				loop(d.Process("a"), b.N)
				return
			}
			for range procs {
				p := d.Process("a")
				d.Go(p, func() { loop(p, b.N/procs) })
			}
			if err := d.Run(); err != nil {
				b.Error(err)
			}
		})
	}
}
