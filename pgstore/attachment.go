package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hansard"
	"hansard/engine"
)

// An attachment is a row of hansard_attachments and parts of 1 MiB, each in a row of its own.
//
//	upload   a row without a digest, which no reader finds, and one part after the other
//	finish   with the session's row locked, the row gets its digest and becomes visible
//	append   with the session's row locked, the row is looked up, locked against changes,
//	         and marked as named
//	remove   the row loses its digest and takes no more parts; then the parts are removed,
//	         a few at a time, and then the row
//
// So whichever process dies at whatever moment, half an attachment is never visible, and no
// parts are without a row that leads to them. What a dead process left over is removed by
// the next sweep; an upload, a day after its last part.

// partBytes is the size of a part. Stored data depends on it: it can't be changed.
const partBytes = 1 << 20

const (
	// startUpload waits for a concurrent deletion of the session, or makes it wait.
	startUpload = `INSERT INTO hansard_attachments (id, upload, size, made) SELECT h.id, $2, 0, clock_timestamp() FROM hansard_heads h WHERE h.id = $1 AND NOT h.deleted FOR KEY SHARE`
	addPart     = `WITH upload AS (
		UPDATE hansard_attachments SET size = size + octet_length($4::bytea), made = clock_timestamp() WHERE id = $1 AND upload = $2 AND digest IS NULL AND NOT dropping RETURNING id, upload
	)
	INSERT INTO hansard_attachment_parts (id, upload, n, bytes) SELECT id, upload, $3::integer, $4 FROM upload`
	findUpload   = `SELECT size FROM hansard_attachments WHERE id = $1 AND upload = $2 AND digest IS NULL AND NOT dropping FOR UPDATE`
	finishUpload = `UPDATE hansard_attachments SET digest = $3, made = $4 WHERE id = $1 AND upload = $2 AND digest IS NULL`
	attachAgain  = `UPDATE hansard_attachments SET made = $3 WHERE id = $1 AND digest = $2`
	markNamed    = `UPDATE hansard_attachments SET named = true WHERE id = $1 AND digest = $2`
)

var (
	// findAttached locks the rows it finds, so that they keep their digest until the commit.
	findAttached = knownAttachments("FOR KEY SHARE")
	lookAttached = knownAttachments("")
)

// knownAttachments is knownKeys for attachments.
func knownAttachments(lock string) string {
	return `SELECT known.digest, known.size, known.named FROM unnest($2::text[]) AS asked(digest)
		CROSS JOIN LATERAL (SELECT a.digest, a.size, a.named FROM hansard_attachments a WHERE a.id = $1 AND a.digest = asked.digest LIMIT 1 ` + lock + `) AS known`
}

func digests(list []hansard.Attachment) (out []string) {
	for _, a := range list {
		out = append(out, a.Digest)
	}
	return out
}

// attachedSize is the size of an attachment that the job looked up.
func (l *locked) attachedSize(digest string) (int64, bool) {
	a, ok := l.attached[digest]
	return a.size, ok
}

// writeNamed marks the attachments that these rows are the first to name.
func (l *locked) writeNamed(b *pgx.Batch, r *rows) {
	for _, a := range r.named() {
		if !l.attached[a.Digest].named {
			b.Queue(markNamed, string(l.id), a.Digest)
		}
	}
}

func (l *locked) readAttached(res pgx.BatchResults, j *job) error {
	if len(j.digests) > 0 {
		found, err := res.Query()
		if err != nil {
			return err
		}
		if l.attached, err = readKnownAttachments(found); err != nil {
			return err
		}
	}
	l.uploaded = -1
	if j.upload != "" {
		if err := res.QueryRow().Scan(&l.uploaded); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	}
	return nil
}

// knownAttachment is a row of knownAttachments.
type knownAttachment struct {
	size  int64
	named bool
}

func readKnownAttachments(found pgx.Rows) (map[string]knownAttachment, error) {
	known := make(map[string]knownAttachment)
	defer found.Close()
	for found.Next() {
		var digest string
		var k knownAttachment
		if err := found.Scan(&digest, &k.size, &k.named); err != nil {
			return nil, err
		}
		known[digest] = k
	}
	return known, found.Err()
}

// Attach implements [hansard.Store]. Each part is a commit of its own, with no lock held
// between them. The last commit, which makes them an attachment, is durable, and makes all
// parts before it durable too.
func (s *Store) Attach(ctx context.Context, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) {
	u := &upload{s: s, ctx: ctx, id: id, name: newMark()}
	if err := u.start(); err != nil {
		return hansard.Attachment{}, err // before anything is read
	}
	kept := false
	defer func() {
		if !kept {
			u.drop()
		}
	}()
	a, err := engine.CopyAttachment(u, r, hansard.MaxAttachmentBytes)
	if err == nil {
		err = u.flush()
	}
	if err == nil {
		kept, err = u.finish(a)
	}
	if err != nil {
		return hansard.Attachment{}, err
	}
	return a, nil
}

// upload is an attachment being uploaded: a writer.
type upload struct {
	s    *Store
	ctx  context.Context
	id   hansard.SessionID
	name string
	part []byte // the next part, as far as it has been written
	n    int    // its number
}

func (u *upload) start() error {
	for {
		n, err := u.s.exec(u.ctx, u.id, startUpload, u.name)
		if err != nil || n > 0 {
			return err
		}
		if _, err := u.s.Stat(u.ctx, u.id); err != nil {
			return err
		}
		// The session was created between the two statements.
	}
}

func (u *upload) Write(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	for rest := p; len(rest) > 0; {
		n := min(len(rest), partBytes-len(u.part))
		u.part, rest = append(u.part, rest[:n]...), rest[n:]
		if len(u.part) == partBytes {
			if err := u.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

// flush stores the current part.
func (u *upload) flush() error {
	if len(u.part) == 0 {
		return nil
	}
	n, err := u.s.exec(u.ctx, u.id, addPart, u.name, u.n, u.part)
	if err == nil && n == 0 {
		err = u.lost()
	}
	u.part, u.n = u.part[:0], u.n+1
	return err
}

// lost tells why an upload is gone.
func (u *upload) lost() error {
	if _, err := u.s.Stat(u.ctx, u.id); err != nil {
		return err
	}
	return &UnavailableError{errors.New("what was uploaded so far is gone: the database lost it in a crash, or it was left alone for a day")}
}

// finish makes an upload an attachment, if the session still exists and does not have it
// already. It is idempotent.
func (u *upload) finish(a hansard.Attachment) (kept bool, err error) {
	if err := u.s.begin(u.ctx, u.id); err != nil {
		return false, err
	}
	defer u.s.work.Done()
	becomes, gone := false, false // not kept itself: a caller that leaves returns while the decision may still be made
	err = u.s.write(u.ctx, &job{id: u.id, digests: []string{a.Digest}, upload: u.name, decide: func(l *locked) (*change, error) {
		becomes, gone = false, false
		if err := l.head.find(u.id); err != nil {
			return nil, err
		}
		if _, there := l.attachedSize(a.Digest); there {
			return &change{more: func(b *pgx.Batch) { b.Queue(attachAgain, string(u.id), a.Digest, l.now) }}, nil
		}
		if gone = l.uploaded != a.Size; gone {
			return nil, nil
		}
		becomes = true
		return &change{more: func(b *pgx.Batch) { b.Queue(finishUpload, string(u.id), u.name, a.Digest, l.now) }}, nil
	}}, nothing)
	switch {
	case err != nil:
		return false, err // it may still be executing
	case gone:
		return false, u.lost()
	}
	return becomes, nil
}

// drop removes the upload, unless it has become an attachment after all.
func (u *upload) drop() {
	if u.s.begin(context.Background(), u.id) != nil {
		return // the store is closed: a sweep removes it
	}
	defer u.s.work.Done()
	u.s.remove(func(ctx context.Context) bool { return u.s.dropUpload(ctx, u.id, u.name) })
}

// exec executes an idempotent statement about a session's attachments, and returns how many
// rows it inserted or changed.
func (s *Store) exec(ctx context.Context, id hansard.SessionID, sql string, args ...any) (n int64, err error) {
	if err := s.begin(ctx, id, s.writable()); err != nil {
		return 0, err
	}
	defer s.work.Done()
	err = s.look(ctx, func(ctx context.Context) error {
		return s.reserved(ctx, func(conn *pgxpool.Conn) error {
			tag, err := conn.Exec(ctx, sql, append([]any{string(id)}, args...)...)
			_ = doubt(conn.Conn().PgConn()) // ignored: the commit that makes it an attachment waits for all earlier ones
			if code(err) == uniqueViolation {
				n = 1 // an earlier try has stored it: nobody else uses this name
				return nil
			}
			leaveStandby(conn.Conn(), err)
			n = tag.RowsAffected()
			return err
		})
	})
	return n, err
}

const (
	// abandon makes an upload refuse more parts, unless it has become an attachment.
	abandon = `UPDATE hansard_attachments SET dropping = true WHERE id = $1 AND upload = $2 AND digest IS NULL`
	// condemn does the same to all uploads and attachments of a deleted session.
	condemn = `UPDATE hansard_attachments SET digest = NULL, named = false, dropping = true WHERE id = $1 AND NOT dropping AND ` + stillPurging
	// condemnUnnamed does it to attachments that no event has named for a day. It reads all
	// attachments: only Prune sends it.
	condemnUnnamed = `WITH old AS (SELECT id, upload, digest FROM hansard_attachments WHERE digest IS NOT NULL AND NOT named AND made < clock_timestamp() - interval '1 day' FOR UPDATE)
		UPDATE hansard_attachments a SET digest = NULL, dropping = true FROM old WHERE a.id = old.id AND a.upload = old.upload AND NOT a.named RETURNING old.id || '/' || old.digest`
	// dropParts removes the next parts after a given one, up to those of an upload, and
	// returns the last part removed. Parts may be large: a few at a time.
	dropParts = `WITH part AS (SELECT upload, n FROM hansard_attachment_parts WHERE id = $1 AND (upload, n) > ($2::text, $3::integer) AND upload <= $4 AND ($2 = $4 OR ` + stillPurging + `) ORDER BY upload, n LIMIT 16),
	gone AS (DELETE FROM hansard_attachment_parts p USING part WHERE p.id = $1 AND p.upload = part.upload AND p.n = part.n)
	SELECT upload, n FROM part ORDER BY upload DESC, n DESC LIMIT 1`
	dropRows = `DELETE FROM hansard_attachments WHERE id = $1 AND upload >= $2 AND upload <= $3 AND digest IS NULL AND dropping`
	toDrop   = `SELECT id, upload FROM hansard_attachments WHERE digest IS NULL AND (dropping OR made < clock_timestamp() - interval '1 day')`
	// lastUpload sorts after the names of all uploads.
	lastUpload = "\x7f"
)

// pruneAttachments removes attachments that no event named for a day, and abandoned uploads.
func (s *Store) pruneAttachments(ctx context.Context) ([]string, error) {
	var removed []string
	err := s.reserved(ctx, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, condemnUnnamed)
		if err == nil {
			removed, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	if err == nil {
		s.sweepUploads(ctx) // what it does not finish is left to the next sweep
	}
	return removed, err
}

// purgeAttachments removes all attachments of a deleted session.
func (s *Store) purgeAttachments(ctx context.Context, id hansard.SessionID) error {
	if _, err := s.execReserved(ctx, condemn, string(id)); err != nil {
		return err
	}
	return s.dropUploads(ctx, id, "", lastUpload)
}

// dropUpload removes an upload that has not become an attachment.
func (s *Store) dropUpload(ctx context.Context, id hansard.SessionID, upload string) (done bool) {
	tag, err := s.execReserved(ctx, abandon, string(id), upload)
	if err != nil || tag.RowsAffected() == 0 {
		return err == nil
	}
	return s.dropUploads(ctx, id, upload, upload) == nil
}

// dropUploads removes uploads that take no more parts: first their parts, then their rows,
// which lead to the parts.
func (s *Store) dropUploads(ctx context.Context, id hansard.SessionID, first, last string) error {
	for upload, n := first, -1; ; {
		err := s.rowReserved(ctx, []any{&upload, &n}, dropParts, string(id), upload, n, last)
		if errors.Is(err, pgx.ErrNoRows) {
			break
		}
		if err != nil {
			return err
		}
	}
	_, err := s.execReserved(ctx, dropRows, string(id), first, last)
	return err
}

// sweepUploads removes uploads and attachments that others left half removed or abandoned.
func (s *Store) sweepUploads(ctx context.Context) {
	rows, err := s.pool.Query(ctx, toDrop)
	if err != nil {
		return
	}
	type left struct{ ID, Upload string }
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[left])
	if err != nil {
		return
	}
	for _, l := range found {
		s.dropUpload(ctx, hansard.SessionID(l.ID), l.Upload)
	}
}

// findPart finds an attachment and one of its parts; columns are NULL for what is missing.
const findPart = `SELECT h.deleted, a.size, p.bytes FROM hansard_heads h
	LEFT JOIN LATERAL (SELECT upload, size FROM hansard_attachments WHERE id = $1 AND digest = $2 LIMIT 1) a ON true
	LEFT JOIN LATERAL (SELECT bytes FROM hansard_attachment_parts WHERE id = $1 AND upload = a.upload AND n = $3 LIMIT 1) p ON true
	WHERE h.id = $1`

// OpenAttachment implements [hansard.Store]. The reader reads a part at a time, and holds
// no connection between reads. It fails once its context has ended.
func (s *Store) OpenAttachment(ctx context.Context, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
	r := &parts{s: s, ctx: ctx, id: id, n: -1}
	r.Digest = digest
	if err := r.load(r.n); err != nil {
		return nil, err
	}
	return engine.ReadAttachment(r, id, r.Attachment), nil
}

// parts reads an attachment.
type parts struct {
	hansard.Attachment
	s    *Store
	ctx  context.Context
	id   hansard.SessionID
	at   int64
	n    int64 // the number of part; -1 if none is loaded
	part []byte
}

// load reads a part. With n = -1 it reads none, and only checks that the attachment exists.
func (r *parts) load(n int64) error {
	if err := r.s.begin(r.ctx, r.id, hansard.CheckDigest(r.Digest)); err != nil {
		return err
	}
	defer r.s.work.Done()
	h := &head{}
	var size *int64
	var part []byte
	err := r.s.look(r.ctx, func(ctx context.Context) error {
		err := r.s.pool.QueryRow(ctx, findPart, string(r.id), r.Digest, n).Scan(&h.deleted, &size, &part)
		if errors.Is(err, pgx.ErrNoRows) {
			h, err = nil, nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := h.find(r.id); err != nil {
		return err
	}
	if size == nil {
		return engine.NoAttachment(r.id, r.Digest)
	}
	if n < 0 {
		r.Size = *size
		return nil
	}
	if want := min(r.Size-n*partBytes, partBytes); *size != r.Size || int64(len(part)) != want {
		return fmt.Errorf("%w: attachment %s of session %s has %d bytes in part %d of %d bytes, want %d", hansard.ErrDamaged, r.Digest, r.id, len(part), n, *size, want)
	}
	r.n, r.part = n, part
	return nil
}

func (r *parts) Read(p []byte) (int, error) {
	if r.at >= r.Size {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	if n := r.at / partBytes; n != r.n {
		r.n, r.part = -1, nil // never two parts in memory
		if err := r.load(n); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.part[r.at%partBytes:])
	r.at += int64(n)
	return n, nil
}

func (r *parts) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.Size
	default:
		return 0, fmt.Errorf("%w: invalid whence %d", hansard.ErrInvalid, whence)
	}
	if offset < 0 {
		return 0, fmt.Errorf("%w: negative offset %d", hansard.ErrInvalid, offset)
	}
	r.at = offset
	return offset, nil
}

// Close releases the part in memory. No connection is held.
func (r *parts) Close() error {
	r.part, r.n = nil, -1
	return nil
}

// attachmentsAfter gives one row with NULLs if the session has no attachment after $2.
const attachmentsAfter = `SELECT h.deleted, a.digest, a.size FROM hansard_heads h
	LEFT JOIN LATERAL (SELECT digest, size FROM hansard_attachments WHERE id = $1 AND digest > $2 ORDER BY digest LIMIT 1000) a ON true
	WHERE h.id = $1 ORDER BY a.digest`

// Attachments implements [hansard.Store].
func (s *Store) Attachments(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Attachment, error] {
	return func(yield func(hansard.Attachment, error) bool) {
		for after := ""; ; {
			page, err := s.attachmentsAfter(ctx, id, after)
			if err != nil {
				yield(hansard.Attachment{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, a := range page {
				if !yield(a, nil) {
					return
				}
				after = a.Digest
			}
		}
	}
}

func (s *Store) attachmentsAfter(ctx context.Context, id hansard.SessionID, after string) (page []hansard.Attachment, err error) {
	if err := s.begin(ctx, id); err != nil {
		return nil, err
	}
	defer s.work.Done()
	var h *head
	err = s.collect(ctx, func(rows pgx.Rows) error {
		h = &head{}
		var digest *string
		var size *int64
		if err := rows.Scan(&h.deleted, &digest, &size); err != nil || digest == nil {
			return err
		}
		page = append(page, hansard.Attachment{Digest: *digest, Size: *size})
		return nil
	}, func() { h, page = nil, nil }, attachmentsAfter, string(id), after)
	if err == nil {
		err = h.find(id)
	}
	return page, err
}
