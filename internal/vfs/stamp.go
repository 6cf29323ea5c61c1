package vfs

import "time"

// DirStamp identifies the directory at a name and when its entries changed last. Two equal
// stamps do not prove that nothing changed in between: clocks have a limited resolution. See
// SettledDir and MarkDir.
type DirStamp struct {
	Inode       uint64
	Mod, Change int64 // nanoseconds; Change can't be set by any program
}

// settledFor is how long a directory has to be unchanged before its stamp proves anything:
// much more than the resolution of any clock, within which two changes look like one.
const settledFor = 100 * time.Millisecond

// SettledDir is the stamp of a directory, if two equal ones prove that nothing changed in
// between. Zero: it proves nothing, because the directory changed a moment ago, or in the
// future, or its stamp is not available here. now is from before the call.
func (o *OS) SettledDir(name string, now time.Time) DirStamp {
	stamp, ok := o.DirStamp(name)
	if !ok || now.Sub(time.Unix(0, max(stamp.Mod, stamp.Change))) <= settledFor {
		return DirStamp{}
	}
	return stamp
}

// MarkDir sets the modification time of a directory. A mark that no clock produces separates
// later changes from earlier ones, whatever the resolution of the clock.
func (o *OS) MarkDir(name string, mark time.Time) error {
	l, err := local("chtimes", name)
	if err != nil {
		return err
	}
	return named(name, o.root.Chtimes(l, time.Time{}, mark))
}
