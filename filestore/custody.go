package filestore

import (
	"time"

	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Tracking changes to sessions/. The store creates and removes logs through the journal,
// which a list can follow; a log that is copied in from a backup, or removed by hand, is
// not in the journal. It changes the time of the directory, but so does every log that
// the store creates. So every process that changes the directory under write.lock keeps a
// record in the control file: the directory as it was left, and a generation that stays
// the same as long as the directory is found unchanged the next time.
//
// The time of a directory has the resolution of the kernel's clock, a few ms: two changes
// within one tick look like one. So after each change the time is set to a mark, a random
// time that no clock produces. What remains undetected is a change from outside between
// our look, our change and our mark, a few µs; a list that has no other reason to scan
// the directory therefore does so after a while (lookAgain).

// inCustody changes the entries of sessions/, under write.lock, and records the state of
// the directory. If it can't, the next list scans the directory.
func (p *process) inCustody(change func() error) error {
	dir, ok := p.fs.(*vfs.OS)
	if !ok {
		return change()
	}
	before, known := dir.DirStamp(sessionlog.Dir)
	left, ok := peers.ReadCustody(p.fs)
	if err := change(); err != nil || !known {
		return err
	}
	if !ok || left.Dir != before {
		left.Generation = p.cfg.random() | 1
	}
	mark := time.Unix(p.cfg.now().Unix(), int64(p.cfg.random()%1e9))
	if dir.MarkDir(sessionlog.Dir, mark) != nil {
		return nil
	}
	if left.Dir, ok = dir.DirStamp(sessionlog.Dir); ok && left.Dir.Mod == mark.UnixNano() {
		_ = peers.WriteCustody(p.fs, left) // a hint
	}
	return nil
}

// custody is the current state of the logs' directory, and its generation; 0: it was
// modified from outside, or can't be determined. Not ok: not supported here.
func (p *process) custody() (now vfs.DirStamp, generation uint64, ok bool) {
	dir, ok := p.fs.(*vfs.OS)
	if !ok {
		return now, 0, false
	}
	for try := 0; ; try++ {
		now, ok = dir.DirStamp(sessionlog.Dir)
		left, known := peers.ReadCustody(p.fs)
		switch {
		case ok && known && left.Dir == now:
			return now, left.Generation, true
		case !ok || !known || try == 3:
			return now, 0, ok
		}
		time.Sleep(200 * time.Microsecond) // another process may be between change and record
	}
}
