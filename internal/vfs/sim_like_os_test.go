package vfs

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"
)

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
				if size%3 == 0 {
					if st, err := a.Stat(name); err == nil && st.Mode.IsDir() {
						return "" // both refuse; which error comes first is no matter
					}
					return outcome(fsys.Link(name, to))
				}
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
