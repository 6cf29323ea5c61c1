package filestore

import (
	"strconv"
	"sync"

	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// runsDue are the sessions for which a run of names is due (keys.go). One goroutine writes
// them, one after the other, while appends go on: nobody has to wait for a file that only
// saves later processes some reading. It runs as long as there are any.
type runsDue struct {
	mu    sync.Mutex
	names map[string]bool
}

// add notes a session, and tells whether there was none before: then nobody is writing.
func (d *runsDue) add(name string) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names == nil {
		d.names = map[string]bool{}
	}
	first = len(d.names) == 0
	d.names[name] = true
	return first
}

// next is one of the sessions, after the last one was done; "": there are none.
func (d *runsDue) next(done string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.names, done)
	for name := range d.names {
		return name
	}
	return ""
}

// writeRunOf has a run of a session's names written in the background.
func (cm *committer) writeRunOf(name string) {
	if !cm.runsDue.add(name) {
		return
	}
	if !cm.queue.beforeClose(func() { cm.workers.Add(1) }) {
		cm.runsDue.next(name)
		return
	}
	go func() {
		defer cm.workers.Done()
		for ; name != ""; name = cm.runsDue.next(name) {
			cm.writeRun(name)
		}
	}()
}

// writeRestingRuns has runs written for sessions that are not written to much, so that a
// fresh process reads little of their logs.
func (cm *committer) writeRestingRuns() {
	for _, name := range cm.keyring.keys.resting() {
		cm.writeRunOf(name)
	}
}

// tendRuns is what the worker begins every 30 s for the runs of all sessions.
func (cm *committer) tendRuns() {
	cm.writeRestingRuns()
	if cm.runsSwept || !cm.queue.beforeClose(func() { cm.workers.Add(1) }) {
		return
	}
	cm.runsSwept = true // once is enough: only a process that died leaves any
	go func() {
		defer cm.workers.Done()
		sweepRuns(cm.process)
	}()
}

// sweepRuns removes runs that were merged into others by a process that died before it
// removed them. Nothing else would, as long as their session is neither deleted nor redacted.
// What fails here is left to the next process.
func sweepRuns(p *process) {
	entries, _ := p.fs.ReadDir(cache.KeysDir)
	begin := map[string][]int64{} // where the runs of a log begin, by its name
	for _, e := range entries {
		name, mark := cutLast(e.Name)
		if from, err := strconv.ParseUint(mark, 16, 63); err == nil && isMark(mark) && sessionlog.IsName(name) && e.Regular {
			begin[name] = append(begin[name], int64(from))
		}
	}
	for name, from := range begin {
		if len(from) < 2 || stillOpen(p) != nil {
			continue // a run that is alone was merged into no other
		}
		f, err := p.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
		if err != nil {
			continue
		}
		if uid, err := sessionlog.ReadUID(f); err == nil {
			p.runsOf(name, uid).Sweep(from)
		}
		_ = f.Close()
	}
}

// writeRun brings the index of a session up to date and writes the run that is due. What
// fails here is left to the next append that asks for it.
func (cm *committer) writeRun(name string) {
	f, _, err := cm.reader.openToRead(name)
	if err != nil {
		return
	}
	defer f.Close()
	k := cm.keyring.keys.get(name)
	if !k.reading.TryLock() {
		return // somebody reads the log, and writes the run
	}
	defer k.reading.Unlock()
	_ = k.catchUp(cm.checks, name, f, true)
	cm.keyring.keys.weigh(name, k)
}

// closingFile is a file that is no longer written once the store is being closed: Close
// waits for the goroutine above, and a run is not worth waiting for.
type closingFile struct {
	vfs.File
	p *process
}

func (f closingFile) WriteAt(b []byte, off int64) (int, error) {
	if err := stillOpen(f.p); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, off)
}
