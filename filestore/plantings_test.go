package filestore

// What each planted bug changes: the lines of a file as they are, and as they are in
// the build that has the bugs. There planted.Is tells which of them is wanted. The lines
// contain no comments, so that a comment can be rewritten without a look in here.
var plantings = []struct{ File, Is, Becomes string }{
	{"apply.go", `		return why, writeLog(sess.f, e.Lines[len(there):], e.Offset+int64(len(there)))
`, `		if planted.Is("append mode") {
			return why, writeLog(sess.f, e.Lines, size)
		}
		return why, writeLog(sess.f, e.Lines[len(there):], e.Offset+int64(len(there)))
`},
	{"apply.go", `	return ol.cut(sess, torn, end)
`, `	if planted.Is("good line cut") {
		end = tail.LastAt
	}
	return ol.cut(sess, torn, end)
`},
	{"attachment.go", `	known := at.synced[path] == file
`, `	known := at.synced[path] == file || planted.Is("attachment named before its directory is synced")
`},
	{"attachment.go", `	if err := f.Datasync(); err != nil {
		return a, at.writeError("attach", err)
	}
`, `	if planted.Is("attachment named before it is synced") {
		return a, nil
	}
	if err := f.Datasync(); err != nil {
		return a, at.writeError("attach", err)
	}
`},
	{"attachment.go", `		st, err := p.store.fs.Stat(attachmentPath(r.name, a.Digest))
`, `		if _, ok := r.prepared.attached[a.Digest]; ok && planted.Is("attachment pruned between look and commit") {
			continue
		}
		st, err := p.store.fs.Stat(attachmentPath(r.name, a.Digest))
`},
	{"attachprune.go", `	if sess.seq != c.Safe {
`, `	if sess.seq != c.Safe && !planted.Is("prune does not look again") {
`},
	{"attachprune.go", `		if _, ok := named[digest]; ok || !at.isOld(file) {`, `		if _, ok := named[digest]; ok || !at.isOld(file) && !planted.Is("prune removes what was attached again") {`},
	{"backlog.go", `	if rd.logsKnown.Load() {`, `	if rd.logsKnown.Load() || planted.Is("logs read before recovery") {`},
	{"catchup.go", `	if err := errors.Join(r.Rewrite(max(durable, sl.Start), end), r.RewriteSlot(0), r.RewriteSlot(1)); err != nil {
		return err
	}
`, `	if !planted.Is("opener without rule A") {
		if err := errors.Join(r.Rewrite(max(durable, sl.Start), end), r.RewriteSlot(0), r.RewriteSlot(1)); err != nil {
			return err
		}
	}
`},
	{"checkpoint.go", `	if err := ck.fs.SyncDir(sessionlog.Dir); err != nil {
`, `	if planted.Is("no directory sync") {
	} else if err := ck.fs.SyncDir(sessionlog.Dir); err != nil {
`},
	{"checkpoint.go", `	if failed := l.f.Datasync() != nil || marks[mark]; failed {`, `	if failed := l.f.Datasync() != nil || marks[mark]; failed && !planted.Is("log not copied") {`},
	{"commit.go", `		if err := l.catchup(); err != nil {
			return 0, nil, err
`, `		if planted.Is("late rotation not caught up with") {
		} else if err := l.catchup(); err != nil {
			return 0, nil, err
`},
	{"commit.go", `		if pos%l.ring.Size == 0 {`, `		if pos%l.ring.Size == 0 && (padded || !planted.Is("written past the end of the ring")) {`},
	{"commit.go", `	if ref.end == 0 {`, `	if ref.end == 0 || planted.Is("answer outlives the entry it rests on") {`},
	{"lock.go", `		began := time.Now()
		if !wl.ahead {`, `		if planted.Is("no lock") && wl.state.attached {
			break
		}
		began := time.Now()
		if !wl.ahead {`},
	{"lock.go", `		inode, _, err := wl.fs.Inode(peers.WriteLock)
`, `		if planted.Is("lock file removed") {
			break
		}
		inode, _, err := wl.fs.Inode(peers.WriteLock)
`},
	{"lock.go", `		l.lim = max(durable, min(l.lock.own.get(w.Epoch), w.Written))
`, `		l.lim = max(durable, min(l.lock.own.get(w.Epoch), w.Written))
		if planted.Is("log before sync") {
			l.lim = w.Written
		}
`},
	{"lock.go", `	l.unpublished = l.ctl.WriteProgress(&l.w)
`, `	l.unpublished = l.ctl.WriteProgress(&l.w)
	if planted.Is("lock file removed") {
		_ = l.fs.Remove(peers.WriteLock)
	}
`},
	{"lock.go", `	if r.SyncFailed {
`, `	if planted.Is("no sync") {
		return nil
	}
	if r.SyncFailed {
`},
	{"lock.go", `	r.SyncFailed = err != nil
`, `	if err != nil && planted.Is("sync retried") {
		return r.File.Datasync()
	}
	r.SyncFailed = err != nil
`},
	{"mend.go", `	if !ck.asides.mayMend(name) {`, `	if planted.Is("damaged for ever by an ill disk") || !ck.asides.mayMend(name) {`},
	{"mend.go", `	c := &checkpointing{names: []string{name}, seen: map[peers.Mark]bool{}}
`, `	if planted.Is("set aside and forgotten too early") {
		return ck.forgetAsides(name, files)
	}
	c := &checkpointing{names: []string{name}, seen: map[peers.Mark]bool{}}
`},
	{"plan.go", `	if err == errUnprepared {
`, `	if planted.Is("holder told before his grant is durable") && errors.Is(err, hansard.ErrHeld) {
		r.dep = 0
	}
	if err == errUnprepared {
`},
	{"plan.go", `			return true, known.err
`, `			if planted.Is("replay before durable") {
				r.dep = 0
			}
			return true, known.err
`},
	{"plan.go", `	r.receipt = sifted.Receipt(r.id, 0)
`, `	r.receipt = sifted.Receipt(r.id, 0)
	if planted.Is("known id told before it is durable") {
		r.dep = 0
	}
`},
	{"erase.go", `	if err == nil {
		err = f.Datasync()
	}
`, `	if err == nil && !planted.Is("erased before the tombstone is durable") {
		err = f.Datasync()
	}
`},
	{"redact.go", `	r := newRedaction(id, &rd)
`, `	if planted.Is("a redaction that loses its record") {
		_ = s.checkpoints.freeRing(true)
		if old, err := s.fs.Open(sessionlog.Path(sessionlog.EncodeName(id)), vfs.ReadOnly); err == nil {
			_, _ = s.checkpoints.eraser.rewrite(sessionlog.EncodeName(id), id, old, rd.Seqs, s.checkpoints.eraser.outOfRing)
			_ = old.Close()
		}
	}
	r := newRedaction(id, &rd)
`},
	{"recover.go", `		if e.Deletes || e.Redacts {
`, `		if e.Deletes || e.Redacts && !planted.Is("a redaction that a crash leaves unfinished") {
`},
	{"takeaway.go", `	if rest := size - w.Size(); rest > 0 {
`, `	if planted.Is("lines that came while the log was redacted are lost") {
		size = w.Size()
	}
	if rest := size - w.Size(); rest > 0 {
`},
	{"takeaway.go", `	if err := f.Datasync(); err != nil {
		return seen, err
	}
`, `	if planted.Is("a redacted log in place before it is synced") {
	} else if err := f.Datasync(); err != nil {
		return seen, err
	}
`},
	{"takeaway.go", `	if err := l.fs.SyncDir(sessionlog.Dir); err != nil {
`, `	if planted.Is("a redacted log whose name is not durable") {
	} else if err := l.fs.SyncDir(sessionlog.Dir); err != nil {
`},
	{"takeaway.go", `	l.w.Flags |= peers.FlagReplaced
`, `	if !planted.Is("a log replaced by a process that died") {
		l.w.Flags |= peers.FlagReplaced
	}
`},
	{"takeaway.go", `	put := ck.eraser.outOfRing
`, `	put := ck.eraser.outOfRing
	if planted.Is("a log redacted under the ring's entries for it") {
		put = func(_ string, fn func(*locked) error) error {
			l, err := ck.lock.lockCaughtUp()
			if err != nil {
				return err
			}
			defer l.unlock()
			return fn(l)
		}
	}
`},
	{"session.go", `	if e.Redacts {
		sess.forget()
	}
`, `	if e.Redacts && !planted.Is("a redacted log taken for the one before") {
		sess.forget()
	}
`},
	{"erase.go", `			if name := in.nameOf(e.Name); e.Regular && sessionlog.IsName(name) {
`, `			name := in.nameOf(e.Name)
			if planted.Is("erasing follows a prefix into another session") {
				name, _, _ = strings.Cut(e.Name, ".")
			}
			if e.Regular && sessionlog.IsName(name) {
`},
	{"fork.go", `		err = f.Datasync()
	}
	var damaged`, `		if !planted.Is("fork committed before it is synced") {
			err = f.Datasync()
		}
	}
	var damaged`},
	{"fork.go", `	dirs := []string{sessionlog.Dir}
	if len(r.linked) > 0 {`, `	dirs := []string{sessionlog.Dir}
	if planted.Is("fork committed before its name is durable") {
		return nil
	}
	if len(r.linked) > 0 && !planted.Is("fork without its attachments") {`},
	{"fork.go", `	if free {
		if err := r.sync()`, `	if planted.Is("fork's note removed too early") {
		_ = fk.fs.Remove(forkNote(r.name, r.uid))
	}
	if free {
		if err := r.sync()`},
	{"recover.go", `	dropForks(l)
`, `	if !planted.Is("fork's leftovers kept") {
		dropForks(l)
	}
`},
	{"internal/sessionlog/fork.go", `	if h.Own == 0 {
		return nil`, `	if h.Own == 0 || planted.Is("fork seen before it is committed") {
		return nil`},
	{"known.go", `	for _, entry := range k.pending {
`, `	for _, entry := range k.pending[:map[bool]int{false: len(k.pending)}[planted.Is("pending ids not looked at")]] {
`},
	{"read.go", `		if e.Left > 0 {`, `		if e.Left > 0 && !planted.Is("half a batch read") {`},
	{"recover.go", `	l.lim, l.cursor, l.cursorChain, l.cold = end, end, chain, false
`, `	l.lim, l.cursor, l.cursorChain, l.cold = end, end, chain, false
	if planted.Is("control trusted") && l.openControl() == nil {
		if w, _, ok := l.ctl.Read(); ok && w.Applied <= end && w.Applied >= sl.Start {
			l.w.Applied = w.Applied
		}
	}
`},
	{"turn.go", `	return r.granted, nil
}
`, `	if planted.Is("lease after its grant") {
		return r.granted, ts.leases.KeepAlive(w.name, &r.granted, 0)
	}
	return r.granted, nil
}
`},
	{"turnplan.go", `	err = engine.Fence(r.id, t.Held, r.turn, r.inbox)
`, `	if planted.Is("no fence") {
		return "", nil
	}
	if planted.Is("grants compared by number") && t.Held != nil && r.turn.Number() >= t.Held.Grant.Number() {
		return "", nil
	}
	err = engine.Fence(r.id, t.Held, r.turn, r.inbox)
`},
	{"turnplan.go", `	if err := p.store.leases.KeepAlive(sess.name, &granted, 0); err != nil {
`, `	if planted.Is("lease after its grant") {
	} else if err := p.store.leases.KeepAlive(sess.name, &granted, 0); err != nil {
`},
	{"turnplan.go", `	r.granted, r.dep = granted, restsOnGroup
`, `	r.granted, r.dep = granted, restsOnGroup
	if planted.Is("grant before durable") {
		r.dep = 0
	}
`},
	{"internal/runs/runs.go", `	if le.Uint32(p.buf[pageSize-4:]) != pageCRC(`, `	if !planted.Is("half-written index believed") && le.Uint32(p.buf[pageSize-4:]) != pageCRC(`},
	{"attachment.go", `	if err := sess.writable(); err != nil {
		return fmt.Errorf("session %s: %w", id, err)
	}
	if err := at.fs.Rename`, `	if err := sess.writable(); err != nil && !planted.Is("an upload that outlives a delete") {
		return fmt.Errorf("session %s: %w", id, err)
	}
	if err := at.fs.Rename`},
	{"commit.go", `		l.note(e, m)
`, `		if planted.Is("memory of a pending group used again") {
			l.note(e, nil)
			continue
		}
		l.note(e, m)
`},
	{"catchup.go", `		l.note(e, m)
`, `		if planted.Is("memory of others' pending lines used again") {
			l.note(e, nil)
		} else {
			l.note(e, m)
		}
`},
	{"internal/journal/scan.go", `	payload, ok := e.decode(h, w.r.Salt, pos)
	if !ok || payload > w.r.Size || e.Prev != chain || e.Epoch < minEpoch || `, `	want := pos
	at := uint64(0)
	for i := range 8 {
		at |= uint64(h[16+i]) << (8 * i)
	}
	if planted.Is("no chain") && (at-pos)%w.r.Size == 0 {
		want = at
	}
	payload, ok := e.decode(h, w.r.Salt, want)
	if ok {
		e.Pos = pos
	}
	if !ok || payload > w.r.Size || !planted.Is("no chain") && (e.Prev != chain || e.Epoch < minEpoch) || `},
	{"internal/peers/holder.go", `	r, life, err := l.lookForeign(t, instance)
`, `	r, life, err := l.lookForeign(t, instance)
	if err != nil && planted.Is("error taken for death") {
		return Sighting{State: HolderDead}, nil
	}
`},
	{"internal/peers/holder.go", `life == processGone && !t.Remote:`, `life == processGone && (!t.Remote || planted.Is("client dead with its server")):`},
	{"internal/peers/holder.go", `		return began-w.since >= t.TTL`, `		return began-w.since >= t.TTL || planted.Is("silent too early") && began-w.since >= t.TTL/2`},
	{"internal/sessionlog/tail.go", `		if l.Left == 0 {
			return &Tail`, `		if l.Left == 0 || planted.Is("half a batch read") {
			return &Tail`},
	{"lock.go", `	if ok && !l.stale && w.Epoch`, `	if ok && (!l.stale || planted.Is("half a reload believed")) && w.Epoch`},
	{"internal/peers/instance.go", `			if !done[Mark{name, m}] {
`, `			if !done[Mark{name, m}] && !planted.Is("marks of the living taken for done") {
`},
	{"recover.go", `	if len(marked) == 0 {
`, `	if len(marked) == 0 || planted.Is("marks forgotten by recovery") {
`},
	{"recover.go", `			if err := notSettled(l, name, byName[name], err); err != nil {
`, `			if err := notSettled(l, name, byName[name], err); err != nil && !planted.Is("a log that recovery can't open is skipped") {
`},
	{"apply.go", `		if !errors.Is(err, syscall.EIO) || len(all) == 0 || `, `		if planted.Is("a bad log is tried once in recovery") || !errors.Is(err, syscall.EIO) || len(all) == 0 || `},
	{"recover.go", `		if kept, err := copyOrKeep(l, sess, entries, nil); kept || err != nil {
`, `		if planted.Is("a log that is bad twice stops recovery") {
			if err := l.logs.replaceByCopy(sess, entries); err != nil {
				return err
			}
		} else if kept, err := copyOrKeep(l, sess, entries, nil); kept || err != nil {
`},
	{"recover.go", `	for _, name := range l.suspects.all() {
		marked`, `	for _, name := range l.suspects.all() {
		if planted.Is("recovery tried again believes its sync") {
			break
		}
		marked`},
	{"recover.go", `	if suspect || l.logs`, `	suspect = suspect && !planted.Is("recovery tried again believes its sync") && !planted.Is("a suspect that can't be read is synced")
	if suspect || l.logs`},
	{"checkpoint.go", `		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EIO) || `, `		if planted.Is("a log that is away is taken for synced") && errors.Is(err, fs.ErrNotExist) {
			c.lost = append(c.lost, name)
			continue
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EIO) && !planted.Is("a log that can't be opened fills the journal") || `},
	{"mend.go", `	if len(c.unsynced) > 0 {
`, `	if len(c.unsynced) > 0 && !planted.Is("set aside and forgotten though not synced") {
`},
	{"takeaway.go", `	if err := keepAllLost(l); err != nil {
`, `	if planted.Is("a redaction that forgets what logs have lost") {
	} else if err := keepAllLost(l); err != nil {
`},
}
