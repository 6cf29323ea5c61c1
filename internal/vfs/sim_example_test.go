package vfs_test

import (
	"bytes"
	"fmt"

	"hansard/internal/vfs"
)

// add appends a byte to a shared file under its lock; nil means durable.
func add(p *vfs.Proc, b byte) error {
	f, err := p.Open("log", vfs.Create)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := p.SyncDir("."); err != nil {
		return err
	}
	if err := f.Lock(vfs.LockExclusive); err != nil {
		return err
	}
	end, err := f.Size()
	if err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte{b}, end); err != nil {
		return err
	}
	return f.Datasync()
}

// Two processes append; before every operation k in turn one of them is killed,
// and after it everything a power cut could leave is looked at.
func Example() {
	states, kills := 0, 0
	for k := 1; ; k++ {
		d := vfs.NewDisk(uint64(k))
		d.KillAt(vfs.Match{N: k}, -1) // of a write any part is done
		acked := map[byte]bool{}
		var last uint64
		d.OnOp(func(op vfs.Op) {
			if d.Version() == last { // nothing new to lose
				return
			}
			last = d.Version()
			var c vfs.Chooser
			for more := true; more; more = c.Next() {
				after := d.Clone()
				after.PowerCut(vfs.Cut{Choose: c.Choose})
				// Here the engine would be opened on a process of after
				// and checked; this one has nothing to recover.
				got, _ := after.CacheBytes("log")
				for b := range acked {
					if !bytes.Contains(got, []byte{b}) {
						fmt.Printf("k %d, choices %v: %c lost after %s\n%q\n", k, c.Taken(), b, op, after.Trace())
					}
				}
				states++
			}
		})
		for _, name := range []string{"a", "b"} {
			p := d.Process(name)
			d.Go(p, func() {
				err := add(p, name[0])
				if err == nil {
					acked[name[0]] = true
				}
			})
		}
		if err := d.Run(); err != nil {
			fmt.Println(err)
		}
		if d.Ops() < k { // there was no k-th operation
			break
		}
		kills++
	}
	fmt.Println(kills, "kills, many states:", states > 100)
	// Output: 14 kills, many states: true
}
