package peers

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"hansard/internal/vfs"
)

// TestMender: a record that could not be written is written as soon as possible, whether or
// not anything else happens.
func TestMender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := vfs.NewDisk(1)
		p := d.Process("a")
		if err := p.Mkdir(InstancesDir); err != nil {
			t.Fatal(err)
		}
		inst := &Instance{Name: InstancesDir + "/x"}
		if err := inst.register(p, make([]byte, TableAt+tableStart*RecordWidth)); err != nil {
			t.Fatal(err)
		}
		l := &Leases{inst: inst}
		d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: InstancesDir + "/*"}, vfs.Fault{Err: syscall.EIO, Part: RecordWidth - 6, Always: true})
		l.mu.Lock()
		_, err := l.put(&tableRecord{Kind: kindLease, Key: 7, value: 1})
		l.mu.Unlock()
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("put: %v", err)
		}
		// The mender holds the lock while it uses the simulated disk, which is not safe for
		// concurrent use.
		time.Sleep(3 * mendEvery)
		synctest.Wait()
		l.mu.Lock()
		if len(l.torn) != 1 {
			t.Error("it counts as written, though that fails")
		}
		d.ClearRules()
		l.mu.Unlock()
		time.Sleep(mendEvery)
		synctest.Wait()
		l.mu.Lock()
		if _, whole, err := ReadTable(inst.f); len(l.torn) != 0 || !whole || err != nil {
			t.Errorf("torn %v, table whole: %v, %v", l.torn, whole, err)
		}
		l.mu.Unlock()
		l.StopAll()
	})
}
