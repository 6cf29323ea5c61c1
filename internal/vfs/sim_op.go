package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Kind is a kind of operation, or several or-ed together to match any of them.
type Kind uint32

// The kinds of operations. File.Inode is not one: it makes no system call.
const (
	OpOpen Kind = 1 << iota
	OpRead
	OpWrite
	OpTruncate
	OpSize
	OpSync
	OpLock
	OpTryLock
	OpUnlock
	OpClose
	OpMkdir
	OpRename
	OpRemove
	OpReadDir
	OpStat
	OpInode
	OpSyncDir
	OpFree
	OpLink

	// OpChange is the set of operations that can change the disk.
	OpChange = OpOpen | OpWrite | OpTruncate | OpSync | OpMkdir | OpRename | OpRemove | OpSyncDir | OpLink
)

var kindNames = []string{
	"open", "read", "write", "truncate", "size", "sync", "lock", "trylock", "unlock", "close",
	"mkdir", "rename", "remove", "readdir", "stat", "inode", "syncdir", "free", "link",
}

func (k Kind) String() string {
	var l []string
	for i, n := range kindNames {
		if k&(1<<i) != 0 {
			l = append(l, n)
		}
	}
	return strings.Join(l, "|")
}

// Op is an operation of a process.
type Op struct {
	// N counts all operations of the disk and PN those of the process, from 1.
	N, PN int
	Proc  string
	Kind  Kind
	Name  string
	To    string // of a rename or link
	Off   int64  // of a read or write; the size of a truncate
	Len   int
	Flags Flag     // of an open
	Mode  LockMode // of a lock
	Note  string   // what the simulation did to it
	Err   error

	// A write under way, for a kill in the middle of it.
	ino  *inode
	data []byte
}

func (o Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %s.%d %s %s", o.N, o.Proc, o.PN, o.Kind, o.Name)
	switch o.Kind {
	case OpRename, OpLink:
		fmt.Fprintf(&b, " → %s", o.To)
	case OpRead, OpWrite:
		fmt.Fprintf(&b, " [%d+%d]", o.Off, o.Len)
	case OpTruncate:
		fmt.Fprintf(&b, " to %d", o.Off)
	case OpLock, OpTryLock:
		b.WriteString(" " + o.Mode.String())
	case OpOpen:
		for i, n := range []string{"read-only", "create", "exclusive"} {
			if o.Flags&(1<<i) != 0 {
				b.WriteString(" " + n)
			}
		}
	}
	if o.Note != "" {
		b.WriteString(" (" + o.Note + ")")
	}
	if o.Err != nil {
		b.WriteString(" = " + bare(o.Err).Error())
	}
	return b.String()
}

func (m LockMode) String() string {
	if m == LockShared {
		return "shared"
	}
	return "exclusive"
}

// bare removes an error's operation and path, which are already printed.
func bare(err error) error {
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		return pe.Err
	case errors.As(err, &le):
		return le.Err
	}
	return err
}

// traceMax is the minimum number of recent operations that are remembered.
const traceMax = 2000

// trace remembers operations, each as it ended. A clone shares those from
// before it was made.
type trace struct {
	before *trace // never changed
	ops    []*Op  // nor these: copies of them would be most of a run's allocations
}

func (t *trace) add(o *Op) {
	if len(t.ops) >= traceMax {
		t.before, t.ops = &trace{ops: t.ops}, nil // older ones are forgotten
	}
	t.ops = append(t.ops, o)
}

func (t *trace) clone() trace {
	if len(t.ops) == 0 {
		return trace{before: t.before}
	}
	return trace{before: &trace{before: t.before, ops: t.ops[:len(t.ops):len(t.ops)]}}
}

// Trace is the last operations, for a failure's report; on a clone also those
// before it was made.
func (d *Disk) Trace() []string {
	var l []string
	for t := &d.trace; t != nil; t = t.before {
		for _, o := range slices.Backward(t.ops) {
			l = append(l, o.String())
		}
	}
	slices.Reverse(l)
	return l
}
