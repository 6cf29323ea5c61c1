package filestore

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Attachments are files beside the logs, one directory for each session:
//
//	attachments/<name of the log>/<64 hex digits>
//
// A file is complete from the moment it has its name: it is written and synced under a
// temporary one. Three steps guarantee that it exists when an event names it, also after
// a power cut. Each is listed with what would go wrong without it:
//
//	prepare    sync the directory, unless this process did so since the file was created:
//	           otherwise the event could survive a power cut and the file not
//	write.lock check once more that the file exists: otherwise a prune may have removed it
//	           since (prune removes under the lock, and checks pending entries there)
//	write.lock rename the file to its final name: otherwise it could appear in a session
//	           that was deleted in the meantime
//
// There is no reference count: an attachment belongs to its session and is removed with
// it.

const (
	attachmentsDir = "attachments"
	// uploadPrefix begins the name of a file that is being written. The rest is random.
	uploadPrefix = "upload."
	// uploadBuffer is how much of an attachment is in memory at once.
	uploadBuffer = 256 << 10
)

func attachmentDir(name string) string { return attachmentsDir + "/" + name }

// attachmentPath is the path of a session's attachment. The digest has been validated.
func attachmentPath(name, digest string) string {
	return attachmentDir(name) + "/" + strings.TrimPrefix(digest, hansard.DigestPrefix)
}

// attachments stores the sessions' attachments.
type attachments struct {
	*process
	lock   *writeLock
	reader *reader

	mu sync.Mutex // guards synced
	// synced are the files whose names this process knows to be durable. A file that was
	// removed and attached again is a different file.
	synced map[string]attachedFile
}

// attachedFile distinguishes successive files of the same name.
type attachedFile struct {
	inode uint64
	made  time.Time
}

// maxSynced bounds the memory of synced; forgotten files are synced again.
const maxSynced = 10_000

// attachedTo is an attachment that an event of a request names.
type attachedTo struct {
	event int // index of the event
	hansard.Attachment
}

// attachedBy are the attachments that events name.
func attachedBy(events []hansard.Event) (list []attachedTo) {
	for i := range events {
		for _, a := range events[i].Attachments {
			list = append(list, attachedTo{i, a})
		}
	}
	return list
}

// Attach stores what a reader supplies beside a session's log. The file is written
// without any lock; only the rename to its final name is under write.lock, and is refused
// if the session was deleted.
func (s *Store) Attach(ctx context.Context, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) {
	if err := s.usable(ctx, id); err != nil {
		return hansard.Attachment{}, err
	}
	a, err := s.attachments.attach(ctx, id, r)
	if err != nil {
		return hansard.Attachment{}, s.readError(id, err)
	}
	return a, nil
}

func (at *attachments) attach(ctx context.Context, id hansard.SessionID, r io.Reader) (a hansard.Attachment, err error) {
	if err := at.thereFor(ctx, id); err != nil {
		return a, err // before anything is read
	}
	name := sessionlog.EncodeName(id)
	for _, dir := range []string{attachmentsDir, attachmentDir(name)} {
		if err := at.fs.Mkdir(dir); err != nil {
			return a, at.writeError("attach", err)
		}
	}
	upload := fmt.Sprintf("%s/%s%016x", attachmentDir(name), uploadPrefix, at.cfg.random())
	defer func() {
		if err != nil {
			_ = at.fs.Remove(upload)
		}
	}()
	if a, err = at.upload(ctx, upload, r); err != nil {
		return a, err
	}
	if err := at.install(id, upload, attachmentPath(name, a.Digest)); err != nil {
		return a, err
	}
	if _, err := at.settle(name, a.Digest); err != nil {
		return a, at.writeError("attach", err)
	}
	return a, nil
}

// upload writes a file and makes its content durable, but not its name.
func (at *attachments) upload(ctx context.Context, path string, r io.Reader) (a hansard.Attachment, err error) {
	f, err := at.fs.Open(path, vfs.Create|vfs.Exclusive)
	if err != nil {
		return a, at.writeError("attach", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(&uploadWriter{f: f}, uploadBuffer)
	var failed *uploadError
	a, err = engine.CopyAttachment(w, &contextReader{ctx, r}, hansard.MaxAttachmentBytes)
	if err == nil {
		err = w.Flush()
	}
	if errors.As(err, &failed) {
		return a, at.writeError("attach", failed.err)
	}
	if err != nil {
		return a, err // an error of the reader, or it is too large
	}
	if err := f.Datasync(); err != nil {
		return a, at.writeError("attach", err)
	}
	return a, nil
}

// uploadError distinguishes a disk error from an error of the caller's reader.
type uploadError struct{ err error }

func (e *uploadError) Error() string { return e.err.Error() }

// uploadWriter writes sequentially.
type uploadWriter struct {
	f  vfs.File
	at int64
}

func (w *uploadWriter) Write(p []byte) (int, error) {
	if _, err := w.f.WriteAt(p, w.at); err != nil {
		return 0, &uploadError{err}
	}
	w.at += int64(len(p))
	return len(p), nil
}

// contextReader fails once its context has ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// install renames an upload to its final name, if the session is still there. An existing
// file of that name has the same bytes; it is replaced all the same, so that prune sees a
// fresh one.
func (at *attachments) install(id hansard.SessionID, upload, path string) error {
	l, err := at.lock.lockCaughtUp()
	if err != nil {
		return at.writeError("attach", err)
	}
	defer l.unlock()
	sess, err := l.lookup(id, sessionlog.EncodeName(id))
	if err != nil {
		return err
	}
	if err := sess.writable(); err != nil {
		return fmt.Errorf("session %s: %w", id, err)
	}
	if err := at.fs.Rename(upload, path); err != nil {
		return at.writeError("attach", err)
	}
	return nil
}

// settle makes the name of an attachment durable, unless this process knows that it is.
// It returns the file it found; zero: there is none.
func (at *attachments) settle(name, digest string) (attachedFile, error) {
	path := attachmentPath(name, digest)
	st, err := at.fs.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return attachedFile{}, nil
	}
	if err != nil {
		return attachedFile{}, err
	}
	file := attachedFile{st.Inode, st.ModTime}
	at.mu.Lock()
	known := at.synced[path] == file
	at.mu.Unlock()
	if known {
		return file, nil
	}
	for _, dir := range []string{attachmentDir(name), attachmentsDir, "."} {
		if err := at.fs.SyncDir(dir); err != nil {
			return attachedFile{}, err
		}
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.synced == nil || len(at.synced) >= maxSynced {
		at.synced = map[string]attachedFile{}
	}
	at.synced[path] = file
	return file, nil
}

// prepare makes the attachments that a request names durable, before write.lock.
func (at *attachments) prepare(r *request) error {
	if len(r.attached) == 0 {
		return nil
	}
	r.prepared.attached = map[string]attachedFile{}
	for _, a := range r.attached {
		if _, ok := r.prepared.attached[a.Digest]; ok {
			continue
		}
		file, err := at.settle(r.name, a.Digest)
		if err != nil {
			return at.writeError("look at an attachment", err)
		}
		if file != (attachedFile{}) {
			r.prepared.attached[a.Digest] = file
		}
	}
	return nil
}

// named checks, under write.lock, that the session has the attachments that the events to
// be stored name. fresh are the indexes of those events; nil: all.
func (p *plan) named(r *request, fresh []int) error {
	for _, a := range r.attached {
		if fresh != nil && !slices.Contains(fresh, a.event) {
			continue
		}
		st, err := p.store.fs.Stat(attachmentPath(r.name, a.Digest))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		size := func(string) (int64, bool) { return st.Size, err == nil }
		if err := engine.CheckNamed(r.id, []hansard.Attachment{a.Attachment}, size); err != nil {
			return err
		}
		if r.prepared.attached[a.Digest] == (attachedFile{st.Inode, st.ModTime}) {
			continue
		}
		// Attached after prepare looked: its name may not be durable yet.
		if !r.prepared.last {
			return errUnprepared
		}
		for _, dir := range []string{attachmentDir(r.name), attachmentsDir, "."} {
			if err := p.store.fs.SyncDir(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// thereFor returns an error if the session can't have attachments. A damaged one can.
func (at *attachments) thereFor(ctx context.Context, id hansard.SessionID) error {
	l, err := at.reader.openLogForRead(ctx, id)
	if err != nil {
		return err
	}
	return l.f.Close()
}

// OpenAttachment opens an attachment of a session.
func (s *Store) OpenAttachment(ctx context.Context, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
	if err := s.readable(ctx, id); err != nil {
		return nil, err
	}
	if err := hansard.CheckDigest(digest); err != nil {
		return nil, err
	}
	r, err := s.attachments.open(ctx, id, digest)
	if err != nil {
		return nil, s.readError(id, err)
	}
	return r, nil
}

func (at *attachments) open(ctx context.Context, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
	if err := at.thereFor(ctx, id); err != nil {
		return nil, err
	}
	f, err := at.fs.Open(attachmentPath(sessionlog.EncodeName(id), digest), vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, engine.NoAttachment(id, digest)
	}
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	section := io.NewSectionReader(f, 0, size)
	return engine.ReadAttachment(&attachmentFile{section, f}, id, hansard.Attachment{Digest: digest, Size: size}), nil
}

type attachmentFile struct {
	*io.SectionReader
	f vfs.File
}

func (f *attachmentFile) Close() error { return f.f.Close() }

// Attachments yields a session's attachments, by digest.
func (s *Store) Attachments(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Attachment, error] {
	return func(yield func(hansard.Attachment, error) bool) {
		err := s.readable(ctx, id)
		var list []hansard.Attachment
		if err == nil {
			list, err = s.attachments.list(ctx, id)
		}
		if err != nil {
			yield(hansard.Attachment{}, s.readError(id, err))
			return
		}
		for _, a := range list {
			if !yield(a, nil) {
				return
			}
		}
	}
}

func (at *attachments) list(ctx context.Context, id hansard.SessionID) (list []hansard.Attachment, err error) {
	if err := at.thereFor(ctx, id); err != nil {
		return nil, err
	}
	name := sessionlog.EncodeName(id)
	entries, err := at.fs.ReadDir(attachmentDir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		digest := hansard.DigestPrefix + e.Name
		if hansard.CheckDigest(digest) != nil || !e.Regular {
			continue // an upload, or a file that is not ours
		}
		_, size, err := at.fs.Inode(attachmentPath(name, digest))
		if errors.Is(err, fs.ErrNotExist) {
			continue // pruned in the meantime
		}
		if err != nil {
			return nil, err
		}
		list = append(list, hansard.Attachment{Digest: digest, Size: size})
	}
	slices.SortFunc(list, func(a, b hansard.Attachment) int { return cmp.Compare(a.Digest, b.Digest) })
	return list, nil
}
