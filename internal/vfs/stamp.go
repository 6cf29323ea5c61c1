package vfs

import "time"

// DirStamp is which directory a name leads to and when its entries changed last. Two that
// are equal do not prove that nothing changed in between: clocks have a resolution. See
// MarkDir.
type DirStamp struct {
	Inode       uint64
	Mod, Change int64 // nanoseconds; Change can't be set by anybody
}

// MarkDir sets the time of change of a directory. A mark that no clock gives tells later
// changes from those before it, whatever the resolution of the clock.
func (o *OS) MarkDir(name string, mark time.Time) error {
	l, err := local("chtimes", name)
	if err != nil {
		return err
	}
	return named(name, o.root.Chtimes(l, time.Time{}, mark))
}
