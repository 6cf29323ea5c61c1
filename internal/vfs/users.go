package vfs

import "sync/atomic"

// Users counts who uses an open file that another may take the place of, while
// somebody still uses the old one: syncs it, or looks how far others got. The last
// to let go closes it.
type Users struct{ n atomic.Int32 }

// Hold keeps the file open. Only while somebody else holds it: the owner does, from
// when it began to use the file until it uses another.
func (u *Users) Hold() { u.n.Add(1) }

// LetGo undoes Hold.
func (u *Users) LetGo(f File) {
	if u.n.Add(-1) == 0 {
		_ = f.Close() // nothing is buffered
	}
}
