package main

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// maxAuditBytes is how large the audit log gets before it is renamed to FILE.1,
// replacing the previous one.
const maxAuditBytes = 64 << 20

// auditFile is an audit log.
type auditFile struct {
	path string
	most int64

	mu   sync.Mutex // guards all below
	f    *os.File
	size int64
}

// openAudit opens the audit log of --audit-log; "-" is standard error.
func (a *app) openAudit(path string) (io.Writer, func() error, error) {
	switch path {
	case "":
		return nil, func() error { return nil }, nil
	case "-":
		return a.stderr, func() error { return nil }, nil
	}
	l := &auditFile{path: path, most: maxAuditBytes}
	if err := l.open(); err != nil {
		return nil, nil, fmt.Errorf("the audit log: %w", err)
	}
	return l, l.close, nil
}

func (l *auditFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", l.path)
	}
	if err != nil {
		f.Close()
		return err
	}
	l.f, l.size = f, info.Size()
	return nil
}

// Write appends one line, in one write: several servers may share the file.
func (l *auditFile) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(line)) > l.most {
		if err := l.putAside(); err != nil {
			return 0, err
		}
	}
	n, err := l.f.Write(line)
	l.size += int64(n)
	return n, err
}

// putAside begins a new file, unless another server already has.
func (l *auditFile) putAside() error {
	ours, err := l.f.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(l.path); err == nil && os.SameFile(ours, now) && now.Size() > 0 {
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			return err
		}
	}
	old := l.f
	if err := l.open(); err != nil {
		return err
	}
	return old.Close()
}

func (l *auditFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
