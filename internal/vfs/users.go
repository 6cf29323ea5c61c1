package vfs

import "sync/atomic"

// Users counts the users of an open file that may be replaced by another while the
// old one is still in use: being synced, or read to see how far others got. The
// last to let go closes it.
type Users struct{ n atomic.Int32 }

// Hold keeps the file open. It may be called only while another user holds it: the
// owner does, from when it began to use the file until it uses another one.
func (u *Users) Hold() { u.n.Add(1) }

// LetGo undoes Hold.
func (u *Users) LetGo(f File) {
	if u.n.Add(-1) == 0 {
		_ = f.Close() // nothing is buffered
	}
}
