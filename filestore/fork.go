package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// A fork is a copy of its parent's log up to a line, under another header, and one line
// of its own (sessionlog/fork.go). Copying may take long, and is done without the lock:
//
//	no lock      read       the parent, up to the last line that the fork shares
//	             note       forking/<name>.<uid>, durable, and locked as long as we live
//	             copy       to a temporary file, sharing blocks if the file system can; sync
//	             link       the attachments that the lines name, as uploads
//	write.lock   place      if the name is free: rename log and attachments
//	no lock      sync       the directories
//	the commit   an entry with the fork's first own line; synced, applied, answered
//
// Invariants:
//   - A log that has the header of a fork, but not yet the line that the header points to,
//     is no session: nobody sees it, and another session may take its name (cutStub). So
//     the fork comes into being with the entry, whole, or not at all (TestSimFork).
//   - When the entry is in the ring, everything else of the fork is durable: recovery finds
//     the log that the entry belongs to, and the attachments that its events name.
//   - Attachments get their final names only together with the placed log, under
//     write.lock: a session that takes the name does not find files of the fork's parent.
//   - A log of this kind without its note is damaged: it had the line and lost it. The note
//     is removed only when the line is durable, or when nothing of the fork is left.
//
// The parent's log is only read. Lines appended to it later are not in the copy. If it is
// replaced in the meantime (a repair, a redaction), or ends in a tombstone when the fork
// is about to be committed, the copy is thrown away: content that was removed must not
// reappear. If content of the parent is waiting to be removed, that is done first.

// forkingDir has a file for each fork that is being made, named after its log and its
// uid.
const forkingDir = "forking"

func forkNote(name string, uid uint64) string {
	return fmt.Sprintf("%s/%s.%016x", forkingDir, name, uid)
}

// forker makes forks.
type forker struct {
	*process
	lock        *writeLock
	reader      *reader
	committer   *committer
	checkpoints *checkpoints
}

// forkTries is how often a fork starts over because its parent's log was replaced, or is
// about to be. Each of the redactions that cause this makes progress. As many as a
// redaction tries beside others (replacedTries).
const forkTries = 100

// Fork implements [hansard.Store].
func (s *Store) Fork(ctx context.Context, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
	if err := s.usable(ctx, id); err != nil {
		return hansard.Info{}, err
	}
	if err := engine.CheckFork(&f); err != nil {
		return hansard.Info{}, err
	}
	for try := 1; ; try++ {
		err := s.forker.fork(ctx, id, f)
		switch {
		case err == nil:
			// It is stored: a context that ends now must not turn that into an error.
			return engine.Forked(s.Stat(context.WithoutCancel(ctx), f.As))
		case try < forkTries && errors.Is(err, errInJournal):
			err = s.checkpoints.freeRing(true)
		case try < forkTries && errors.Is(err, errChanged):
			err = nil
		case try < forkTries && errors.Is(err, errRedacting):
			err = s.checkpoints.takeAway(ctx, sessionlog.EncodeName(id))
		case errors.Is(err, errChanged):
			err = fmt.Errorf("%w: the log of the session that is forked was replaced again and again: %w", hansard.ErrBusy, err)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return hansard.Info{}, s.readError(id, err)
		}
	}
}

// forking is one attempt to make a fork.
type forking struct {
	*forker
	ctx    context.Context
	id     hansard.SessionID // of the parent
	fork   hansard.Fork
	name   string // of the fork's log
	uid    uint64
	parent *openedLog
	inode  uint64           // of the parent's log
	last   *sessionlog.Tail // the last shared line, as if the parent's log ended there

	tmp    string   // the copy, until it is placed
	placed bool     // parts of it may be in their final place
	note   vfs.File // open and locked while the fork is being made
	// linked are the attachments, by digest, with their names as uploads.
	linked map[string]string

	event hansard.Event
	drafted
}

// drafted is what the commit needs for the fork's first own line.
type drafted struct {
	parentName  string
	parentInode uint64
	uid         uint64                // of the placed log
	event       *hansard.Event        // its time and seq are set by the commit
	meta        *sessionlog.MetaState // before the line
	next        hansard.Meta          // and after it
}

// fork is one attempt. errChanged, errInJournal and errRedacting ask for another one.
func (fk *forker) fork(ctx context.Context, id hansard.SessionID, f hansard.Fork) (err error) {
	l, err := fk.reader.openLogForRead(ctx, id)
	if err != nil {
		return err
	}
	defer l.f.Close()
	r := &forking{forker: fk, ctx: ctx, id: id, fork: f, name: sessionlog.EncodeName(f.As), uid: fk.cfg.random(), parent: l}
	if err := r.begin(); err != nil {
		return err
	}
	defer func() { r.end(err) }()
	if err := r.makeNote(); err != nil {
		return fk.writeError("fork", err)
	}
	if err := r.copy(); err != nil {
		return err
	}
	if err := r.link(); err != nil {
		return err
	}
	free, err := r.place()
	if err != nil {
		return err
	}
	if free {
		if err := r.sync(); err != nil {
			return fk.writeError("fork", err)
		}
	}
	// Also if the name is taken: what a refusal rests on has to be durable too.
	_, err = fk.committer.submit(ctx, r.request())
	return err
}

// begin decides what the fork consists of, and refuses impossible ones. It only reads.
func (r *forking) begin() (err error) {
	l := r.parent
	if l.header == nil {
		return l.damage
	}
	tail := l.tail
	if l.damage != nil {
		if r.fork.At == 0 || r.fork.At > l.damage.SafeSeq {
			return l.damage
		}
		if tail, err = r.reader.safeTail(l); err != nil || tail == nil {
			return errors.Join(err, l.damage)
		}
	}
	if r.fork.At == 0 {
		r.fork.At = tail.Last.Seq
	}
	if r.fork.At > tail.Last.Seq {
		return engine.ForkPastEnd(r.fork.At, tail.Last.Seq)
	}
	var ok bool
	if r.last, ok = locate(l, tail, r.fork.At); !ok {
		return r.reader.damagedInScan(l.f, r.id, sessionlog.DamagedAt(r.id, 0, "event %d can't be found", r.fork.At))
	}
	if r.last.Last.Left > 0 {
		return r.insideBatch()
	}
	if r.inode, err = l.f.Inode(); err != nil {
		return err
	}
	if err := r.nameIsFree(); err != nil {
		return err
	}
	if beingErased(r.fs, sessionlog.EncodeName(r.id)) {
		return errRedacting // before it is copied
	}
	return r.describe()
}

// insideBatch is the refusal of a fork that would end inside a batch.
func (r *forking) insideBatch() error {
	first := r.last.Last.Seq
	sc := sessionlog.NewBackScanner(r.parent.f, r.last.LastAt)
	var d sessionlog.Decoder
	for first > 1 {
		b, at, err := sc.Prev()
		if err != nil {
			return err
		}
		l, err := d.Head(b)
		if err != nil {
			return r.reader.damagedInScan(r.parent.f, r.id, sessionlog.DamagedAt(r.id, at, "%v", err))
		}
		if l.Left == 0 {
			break
		}
		first = l.Seq
	}
	return engine.ForkInBatch(r.fork.At, first, r.fork.At+hansard.Seq(r.last.Last.Left))
}

// nameIsFree refuses early what the commit would refuse after a long copy. What is in a
// log is durable, so it can answer at once.
func (r *forking) nameIsFree() error {
	l, err := r.reader.openLogForRead(r.ctx, r.fork.As)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("session %s: %w", r.fork.As, hansard.ErrExists), l.f.Close())
	case errors.Is(err, hansard.ErrNotFound):
		return nil
	case errors.Is(err, hansard.ErrDamaged):
		return fmt.Errorf("session %s: %w", r.fork.As, hansard.ErrExists)
	}
	return err
}

// describe makes the fork's first own event: its metadata and turn follow from the
// parent's lines.
func (r *forking) describe() (err error) {
	if r.meta, err = sessionlog.ReadMeta(r.parent.f, r.last); err != nil {
		return err
	}
	turn, err := turnIn(r.parent, r.last)
	if err != nil {
		return err
	}
	r.event = engine.ForkEvent(r.id, &r.fork)
	if turn.Held != nil {
		r.event.Turn = turn.Held.Grant
	}
	r.next, err = engine.ApplyPatch(r.fork.As, r.meta.Meta, r.event.Patch)
	return err
}

// request is the fork's request to the commit.
func (r *forking) request() *request {
	r.drafted.parentName, r.drafted.parentInode = sessionlog.EncodeName(r.id), r.inode
	r.drafted.uid, r.drafted.event = r.uid, &r.event
	body := sessionlog.EncodeBody(nil, &r.event, "", "")
	q := &request{op: opFork, id: r.fork.As, name: r.name, bodies: [][]byte{body}, fork: &r.drafted}
	q.size = len(body) + journal.EntryHeader + 2*len(r.name) + 2*sessionlog.StampWidth
	return q
}

// makeNote records durably that a log of this name and uid is a fork that is being made,
// and locks the note: a process that gets the lock knows that we died.
func (r *forking) makeNote() error {
	if err := r.fs.Mkdir(forkingDir); err != nil {
		return err
	}
	f, err := r.fs.Open(forkNote(r.name, r.uid), vfs.Create|vfs.Exclusive)
	if err != nil {
		return err
	}
	r.note = f
	if err := f.Lock(vfs.LockExclusive); err != nil {
		return err
	}
	return errors.Join(r.fs.SyncDir(forkingDir), r.fs.SyncDir("."))
}

// copy makes the fork's log without its own line, and makes its content durable, but not
// its name.
func (r *forking) copy() (err error) {
	r.tmp = fmt.Sprintf("log.%016x.tmp", r.cfg.random()) // sweep removes a leftover
	f, err := r.fs.Open(r.tmp, vfs.Create|vfs.Exclusive)
	if err != nil {
		r.tmp = ""
		return r.writeError("fork", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	head := r.parent.header.Head()
	head.ID, head.UID, head.Was, head.Created, head.Own, head.Parent = r.fork.As, r.uid, 0, r.cfg.now(), r.last.End, nil
	raw, fits := sessionlog.ForkHeader(r.parent.header, &head)
	if fits {
		if err = r.copyBytes(f, r.last.End); err == nil {
			err = writeLog(f, raw, 0)
		}
	} else {
		_, err = sessionlog.Rewrite(f, r.parent.f, r.parent.header, head, r.last.End, r.goesOn)
	}
	if err == nil {
		// Before it gets its final name, or a power cut could keep only the name (failure
		// 23).
		err = f.Datasync()
	}
	var damaged *hansard.DamagedError
	if err != nil && !errors.As(err, &damaged) && r.goesOn() == nil {
		err = r.writeError("fork", err)
	}
	return err
}

// copyBytes copies the beginning of the parent's log: by sharing blocks as far as the
// file system can, and byte by byte from there.
func (r *forking) copyBytes(dst vfs.File, size int64) error {
	at, err := dst.CloneFrom(unbounded(r.parent.f), size)
	if err != nil {
		return err
	}
	buf := make([]byte, min(size-at, 1<<20))
	for at < size {
		if err := r.goesOn(); err != nil {
			return err
		}
		n := min(int64(len(buf)), size-at)
		if got, err := r.parent.f.ReadAt(buf[:n], at); err != nil && (err != io.EOF || int64(got) < n) {
			return err
		}
		if _, err := dst.WriteAt(buf[:n], at); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// goesOn returns an error that ends a long copy when its caller or the store is done.
func (r *forking) goesOn() error { return r.reader.goesOn(r.ctx, 0) }

// link gives the attachments that the fork's events name a second name in its directory,
// as uploads, which nobody takes for attachments. If linking fails they are copied.
func (r *forking) link() error {
	named, err := r.named()
	if err != nil || len(named) == 0 {
		return err
	}
	for _, dir := range []string{attachmentsDir, attachmentDir(r.name)} {
		if err := r.fs.Mkdir(dir); err != nil {
			return r.writeError("fork", err)
		}
	}
	r.linked = map[string]string{}
	for digest := range named {
		if err := r.goesOn(); err != nil {
			return err
		}
		from := attachmentPath(sessionlog.EncodeName(r.id), digest)
		to := fmt.Sprintf("%s/%s%016x", attachmentDir(r.name), uploadPrefix, r.cfg.random())
		r.linked[digest] = to
		err := r.fs.Link(from, to)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			err = r.copyAttachment(from, to, digest)
		}
		if errors.Is(err, fs.ErrNotExist) {
			if now, statErr := r.reader.describe(r.ctx, r.id); statErr != nil {
				return statErr // deleted in the meantime
			} else if now.Damage != nil {
				return now.Damage
			}
			return &hansard.DamagedError{Session: r.id, SafeSeq: named[digest].seq - 1,
				Reason: fmt.Sprintf("event %d names attachment %s, which is not there", named[digest].seq, digest)}
		}
		if err != nil {
			return r.writeError("fork", err)
		}
	}
	return nil
}

// named are the attachments that the fork's events name. A session without attachments is
// not read for it, and reading stops when all that it has were found.
func (r *forking) named() (map[string]attachedAt, error) {
	files, err := attachedFiles(r.fs, sessionlog.EncodeName(r.id))
	if err != nil {
		return nil, err
	}
	there := 0
	for _, file := range files {
		if hansard.CheckDigest(hansard.DigestPrefix+file[len(file)-min(len(file), 64):]) == nil {
			there++
		}
	}
	named := map[string]attachedAt{}
	sc := sessionlog.NewScanner(r.parent.f, r.parent.header.End)
	for n := 0; sc.At < r.last.End && len(named) < there; n++ {
		if err := r.reader.goesOn(r.ctx, n); err != nil {
			return nil, err
		}
		b, at, err := sc.Next()
		if err != nil {
			return nil, err
		}
		if !sessionlog.HasAttachments(b) {
			continue
		}
		l, err := sessionlog.DecodeHead(b)
		if err != nil {
			return nil, r.reader.damagedInScan(r.parent.f, r.id, sessionlog.DamagedAt(r.id, at, "%v", err))
		}
		for _, a := range l.Attachments {
			if _, twice := named[a.Digest]; !twice {
				named[a.Digest] = attachedAt{l.Seq, a.Size}
			}
		}
	}
	return named, nil
}

// copyAttachment replaces Link on file systems that do not support it.
func (r *forking) copyAttachment(from, to, digest string) error {
	src, err := r.fs.Open(from, vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer src.Close()
	size, err := src.Size()
	if err != nil {
		return err
	}
	a, err := r.committer.attachments.upload(r.ctx, to, io.NewSectionReader(src, 0, size))
	if err == nil && a.Digest != digest {
		err = &hansard.DamagedError{Session: r.id, Reason: fmt.Sprintf("attachment %s has other bytes than its digest says", digest)}
	}
	return err
}

// place renames the copy and its attachments to their final names, under write.lock, if
// the name is free. Nobody sees the fork yet.
func (r *forking) place() (free bool, err error) {
	for waited := time.Duration(0); ; {
		free, busy, err := r.placeNow()
		if !busy || err != nil {
			return free, err
		}
		// Another process is making a fork of this name. It will finish, or die.
		if waited >= r.opt.LockWait {
			return false, &hansard.BusyError{Own: fmt.Sprintf("another fork is being made as %s", r.fork.As)}
		}
		waited += forkPause
		if err := r.pause(forkPause); err != nil {
			return false, err
		}
	}
}

// forkPause is how often we check a name under which another fork is being made.
const forkPause = 5 * time.Millisecond

func (r *forking) pause(d time.Duration) error {
	if r.cfg.sleep != nil {
		r.cfg.sleep(d)
		return r.goesOn()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return r.goesOn()
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

func (r *forking) placeNow() (free, busy bool, err error) {
	l, err := r.lock.lockCaughtUp()
	if err != nil {
		return false, false, r.writeError("fork", err)
	}
	defer l.unlock()
	sess, err := l.lookup(r.fork.As, r.name)
	if err != nil {
		return false, false, err
	}
	switch {
	case sess.exists || sess.deleted || sess.damage != nil:
		return false, false, nil
	case l.logs.dirty.get(r.name).end > l.w.Start:
		return false, false, errInJournal // W6
	case sess.stub && sess.forkOf != 0 && r.alive(sess.forkOf):
		return false, true, nil
	case sess.stub && sess.forkOf != 0:
		// What a dead process left of another fork. Its log is replaced; our own uploads are
		// among its attachments (TestForkAfterKilled).
		err = dropAttachedFiles(r.fs, r.name, false)
	case sess.stub:
		err = l.logs.cutStub(sess)
	}
	if err != nil {
		return false, false, r.writeError("fork", err)
	}
	r.placed = true // at least in part
	// The log first: whoever takes the name from a fork that was not finished removes the
	// attachments if it finds the log (cutFork), and does not look for them otherwise.
	if err := l.inCustody(func() error { return r.fs.Rename(r.tmp, sessionlog.Path(r.name)) }); err != nil {
		return false, false, r.writeError("fork", err)
	}
	r.tmp = ""
	sess.closeLog()
	sess.forget()
	l.checks.checked.forget(r.name)
	for digest, upload := range r.linked {
		if err := r.fs.Rename(upload, attachmentPath(r.name, digest)); err != nil {
			return false, false, r.writeError("fork", err)
		}
	}
	return true, false, nil
}

// alive tells whether the maker of another fork of this name lives: it keeps its note
// locked.
func (r *forking) alive(uid uint64) bool {
	f, err := r.fs.Open(forkNote(r.name, uid), vfs.ReadOnly)
	if err != nil {
		return false
	}
	defer f.Close()
	got, err := f.TryLock(vfs.LockShared)
	return err == nil && !got
}

// sync makes the placed files durable, before the entry that makes them a session.
func (r *forking) sync() error {
	dirs := []string{sessionlog.Dir}
	if len(r.linked) > 0 {
		dirs = append(dirs, attachmentDir(r.name), attachmentsDir, ".")
	}
	for _, dir := range dirs {
		if err := r.fs.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// end removes what is not needed any more. After ErrUnknown the fork may still come into
// being: the placed files stay, with the note, which the next first open looks at.
func (r *forking) end(err error) {
	if r.tmp != "" {
		_ = r.fs.Remove(r.tmp)
	}
	placed := r.placed && err != nil
	if placed && !errors.Is(err, hansard.ErrUnknown) {
		if l, lockErr := r.lock.lockCaughtUp(); lockErr == nil {
			placed = dropFork(l, r.name, r.uid, false) != nil
			l.unlock()
		}
	}
	left := placed
	if err != nil && len(r.linked) > 0 {
		for _, upload := range r.linked {
			left = ignoreMissing(r.fs.Remove(upload)) != nil || left // or it was renamed by now
		}
		left = r.fs.SyncDir(attachmentDir(r.name)) != nil || left
	}
	if r.note == nil {
		return
	}
	if !left {
		_ = r.fs.Remove(forkNote(r.name, r.uid)) // if a power cut restores it, there is nothing to do for it
	}
	_ = r.note.Close() // which also unlocks it
}

// fork drafts the first own line of a fork that was placed, under write.lock, if it is
// still there and its parent still has what was copied.
func (p *plan) fork(sess *session, r *request) error {
	switch {
	case sess.deleted:
		return hansard.ErrDeleted
	case sess.exists || sess.damage != nil:
		return hansard.ErrExists
	case !sess.stub || sess.forkOf != r.fork.uid:
		return errChanged // another session took the name, and lost it again
	}
	if err := stillThere(p.store, r.fork); err != nil {
		return err
	}
	if d := p.store.logs.dirty.get(r.fork.parentName); d.takenBefore(p.store.w.Start, p.store.w.Written) || beingErased(p.store.fs, r.fork.parentName) {
		return errRedacting
	}
	sess.exists, sess.stub, sess.forkOf = true, false, 0
	sess.meta = r.fork.meta
	p.draft(sess).unlisted = true
	r.dep = restsOnGroup
	st, at := sessionlog.Stamp{Turn: r.fork.event.Turn}, sess.end
	if patch := r.fork.event.Patch; patch != nil {
		p.patchLine(sess, &st, r.bodies[0], patch, r.fork.next)
	} else {
		p.line(sess, &st, r.bodies[0])
	}
	if st.Turn != "" {
		sess.turnAt, sess.turn = at, &sessionlog.TurnState{Last: st.Turn}
	}
	r.receipt = hansard.Receipt{Session: r.id, First: sess.seq, Last: sess.seq, Created: true}
	return nil
}

// errRedacting: content of the parent is waiting to be removed, and may be in the copy.
var errRedacting = fmt.Errorf("%w: content of the session that is forked is being taken away", hansard.ErrBusy)

// beingErased tells whether there is a note that content of a session is to be removed.
func beingErased(disk vfs.FS, name string) bool {
	_, _, err := disk.Inode(erasingDir + "/" + name)
	return err == nil
}

// stillThere is errChanged if the parent's log is not the file that was copied, or ends
// in a tombstone: a fork must not resurrect what was erased, redacted or repaired in the
// meantime. A tombstone that is not in the log yet belongs to a delete that comes after
// the fork.
func stillThere(l *locked, d *drafted) error {
	f, err := l.fs.Open(sessionlog.Path(d.parentName), vfs.ReadOnly)
	if err != nil {
		return errors.Join(errChanged, err)
	}
	defer f.Close()
	if inode, err := f.Inode(); err != nil || inode != d.parentInode {
		return errors.Join(errChanged, err)
	}
	if deleted, err := sessionlog.Deleted(f); err != nil || deleted {
		return errors.Join(errChanged, err)
	}
	return nil
}

// cutFork is cutStub for a log that was placed for a fork and has no line of its own: it
// is a copy, so nothing of it has to be kept. Its attachments are its parent's, and are
// removed before another session gets the name.
func (ol *logs) cutFork(sess *session) error {
	if err := dropAttachedFiles(ol.fs, sess.name, true); err != nil {
		return err
	}
	if err := sess.f.Truncate(0); err != nil {
		return err
	}
	// If a power cut restored the copy after a new line was written to the log, the two
	// would be mixed.
	return sess.f.Datasync()
}

// dropAttachedFiles removes the files of a session's attachments, durably. Unfinished uploads only
// if asked: they may be those of another fork that is being made under this name, which would not
// find them again (TestForkBesideOneThatFails).
func dropAttachedFiles(disk vfs.FS, name string, uploads bool) error {
	files, err := attachedFiles(disk, name)
	files = slices.DeleteFunc(files, func(file string) bool {
		return !uploads && strings.HasPrefix(file, attachmentDir(name)+"/"+uploadPrefix)
	})
	if err != nil || len(files) == 0 {
		return err
	}
	for _, file := range files {
		if err := ignoreMissing(disk.Remove(file)); err != nil {
			return err
		}
	}
	return disk.SyncDir(attachmentDir(name))
}

// dropFork removes what is left of a fork that was not committed, under write.lock: its
// log, if that is still there without a line of its own, and its attachments; uploads too, if no
// other process is there that may be making them. After nil nothing is left that needs its note.
func dropFork(l *locked, name string, uid uint64, uploads bool) error {
	id, _ := sessionlog.DecodeName(name)
	sess, err := l.lookup(id, name)
	switch {
	case err != nil:
		return err
	case sess.exists || sess.deleted || sess.damage != nil:
		return nil // the name is a session: this fork, or another one
	case sess.stub && sess.forkOf != uid:
		return nil // the stub of another fork or session
	}
	if err := dropAttachedFiles(l.fs, name, uploads); err != nil {
		return err
	}
	if !sess.stub {
		return nil
	}
	if err := l.inCustody(func() error { return ignoreMissing(l.fs.Remove(sessionlog.Path(name))) }); err != nil {
		return err
	}
	sess.closeLog()
	sess.forget()
	return l.fs.SyncDir(sessionlog.Dir)
}

// dropForks removes the remains of forks whose makers died: at a first open, when
// recovery is over and no other process is there.
func dropForks(l *locked) {
	entries, err := l.fs.ReadDir(forkingDir)
	if err != nil {
		return
	}
	for _, e := range entries {
		name, mark := cutLast(e.Name)
		uid, ok := sessionlog.ParseUID(mark)
		if !ok || !sessionlog.IsName(name) {
			continue
		}
		if err := dropFork(l, name, uid, true); err != nil {
			l.opt.Log.Warn("what a fork left that was not finished could not be removed", "session", name, "error", err)
			continue
		}
		_ = l.fs.Remove(forkingDir + "/" + e.Name)
	}
}

// forkUnfinished judges a log that has the header of a fork but not the line it points
// to: io.EOF if the fork is being made, or was being made by a process that died; damage
// if the log had the line and lost it. With a nil error the line was written in the
// meantime.
func (p *process) forkUnfinished(f vfs.File, name string, id hansard.SessionID, h *sessionlog.Header) error {
	_, _, err := p.fs.Inode(forkNote(name, h.LogUID))
	if err == nil {
		return io.EOF
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The note is removed when the line is there: look once more.
	if _, err := sessionlog.ReadHeader(f, id); err != io.EOF {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	d := sessionlog.DamagedAt(id, min(size, h.Own), "the fork has lost its own first event, and what followed it")
	tail, err := sessionlog.ReadTail(f, d.Offset)
	if err == nil {
		d.SafeSeq, d.Offset = tail.Last.Seq, tail.End
	}
	return d
}

// parentOf is the session that an opened log is a fork of; nil: it is no fork.
func parentOf(f vfs.File, h *sessionlog.Header) (*hansard.Parent, error) {
	if h.Own == 0 {
		return h.Parent, nil
	}
	l, err := sessionlog.DecodeHeadAt(f, h.Own, sessionlog.MaxLine)
	if err != nil {
		return nil, err
	}
	return l.Fork, nil
}

// unbounded returns the file that was passed to bounded.
func unbounded(f vfs.File) vfs.File {
	if b, ok := f.(*boundedFile); ok {
		return b.File
	}
	return f
}
