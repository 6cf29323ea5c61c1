package pgstore

import (
	"context"
	"errors"
	"io"

	"github.com/jackc/pgx/v5"

	"hansard"
)

// compareNamed checks that what events name is attached. It does not matter that it reads
// later than the snapshot: what an event names stays as long as the session does, unless the
// event is redacted.
func (e *examination) compareNamed(ctx context.Context, s *Store) error {
	if len(e.naming) == 0 {
		return nil
	}
	var asked []string
	for _, n := range e.naming {
		asked = append(asked, n.Digest)
	}
	var known map[string]knownAttachment
	err := s.look(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, lookAttached, string(e.id), asked)
		if err == nil {
			known, err = readKnownAttachments(rows)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, n := range e.naming {
		switch k, there := known[n.Digest]; {
		case !there:
			if redacted, err := e.isRedacted(ctx, s, n.seq); redacted || err != nil {
				if err != nil {
					return err
				}
				continue // meanwhile
			}
			e.found("seq %d names attachment %s, which is not there", n.seq, n.Digest)
		case k.size != n.Size:
			e.found("seq %d says that attachment %s has %d bytes, its row says %d", n.seq, n.Digest, n.Size, k.size)
		case !k.named:
			e.found("seq %d names attachment %s, which is kept as one that no event names", n.seq, n.Digest)
		}
	}
	e.naming = e.naming[:0]
	return nil
}

// isRedacted tells whether an event has been redacted by now.
func (e *examination) isRedacted(ctx context.Context, s *Store, seq hansard.Seq) (redacted bool, err error) {
	err = s.look(ctx, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, "SELECT redacted FROM hansard_events WHERE id = $1 AND seq = $2", string(e.id), int64(seq)).Scan(&redacted)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return redacted, err
}

// sumParts adds up the sizes of the stored parts of an attachment.
const sumParts = `SELECT coalesce(sum(octet_length(p.bytes)), 0) FROM hansard_attachments a
	CROSS JOIN LATERAL (SELECT bytes FROM hansard_attachment_parts WHERE id = $1 AND upload = a.upload OFFSET 0) p
	WHERE a.id = $1 AND a.digest = $2`

// attachments reads all attachments, and checks their sizes and digests.
func (e *examination) attachments(ctx context.Context, s *Store) error {
	for a, err := range s.Attachments(ctx, e.id) {
		if err != nil {
			return err
		}
		r, err := s.OpenAttachment(ctx, e.id, a.Digest)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
			r.Close()
		}
		var sum int64
		if err == nil {
			err = s.look(ctx, func(ctx context.Context) error {
				return s.pool.QueryRow(ctx, sumParts, string(e.id), a.Digest).Scan(&sum)
			})
		}
		switch {
		case errors.Is(err, hansard.ErrNoAttachment): // it was removed meanwhile
		case errors.Is(err, hansard.ErrDamaged):
			e.found("%v", err)
		case err != nil:
			return err
		case sum > a.Size:
			e.found("attachment %s is said to have %d bytes, its parts have %d", a.Digest, a.Size, sum)
		}
	}
	return nil
}
