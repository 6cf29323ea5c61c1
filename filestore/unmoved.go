package filestore

import (
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Before a log is written, its name has to lead to the open file (rule LogInode), and the
// file has to end where it should. If a group touches many logs, checking each name costs
// more than the write itself. Then one check of their directory is enough: a name that
// leads to another file, or to none, changed the directory's times. One small read tells
// whether the file ends where it should, and with the right line.

// manyLogs is the number of logs from which one check of the directory is cheaper.
const manyLogs = 8

// lookAtDir records the stamp of the logs' directory for this hold of write.lock. A stamp
// that is too young, or in the future, proves nothing: then each log is checked.
func (ol *logs) lookAtDir() { ol.dir = ol.settledDir(sessionlog.Dir) }

// settledDir is the stamp of a directory; zero: it proves nothing.
func (p *process) settledDir(name string) vfs.DirStamp {
	dir, ok := p.fs.(*vfs.OS)
	if !ok || p.cfg.inline {
		return vfs.DirStamp{}
	}
	return dir.SettledDir(name, p.cfg.now())
}

// lookAtStore records the stamp of the store's directory for this hold of write.lock. One
// check replaces three: the directory changes when write.lock, the journal or control is
// replaced or removed. The caller holds wl.mu.
func (wl *writeLock) lookAtStore() { wl.now = wl.settledDir(".") }

// unmoved tells whether the three names are known to lead to the files that are open.
func (wl *writeLock) unmoved() bool { return wl.now != vfs.DirStamp{} && wl.now == wl.seen }

// unmoved returns the size of an open log whose name still leads to it and that ends with
// the expected line. Not ok: check its name.
func (ol *logs) unmoved(sess *session) (size int64, ok bool) {
	if !ol.inPlace(sess) || !sess.known || sess.ahead > 0 {
		return 0, false
	}
	size, crc := sess.end, sess.crc
	if of := ol.pending.of(sess.name); len(of) > 0 {
		size, crc = of[0].Offset, of[0].LinePrev
	}
	return size, sessionlog.EndsWith(sess.f, size, crc)
}

// inPlace tells whether the name of an open log is known to lead to it, without a check.
func (ol *logs) inPlace(sess *session) bool {
	return ol.dir != vfs.DirStamp{} && sess.seenIn == ol.dir
}
