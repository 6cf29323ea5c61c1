package memstore

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"iter"
	"slices"

	"hansard"
	"hansard/engine"
)

// Attach implements [hansard.Store].
func (s *Store) Attach(ctx context.Context, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) {
	if _, err := s.Stat(ctx, id); err != nil { // before anything is read
		return hansard.Attachment{}, err
	}
	var content bytes.Buffer
	a, err := engine.CopyAttachment(&content, r, hansard.MaxAttachmentBytes)
	if err != nil {
		return hansard.Attachment{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id); err != nil {
		return hansard.Attachment{}, err
	}
	ses, err := s.findLocked(id) // it may have been deleted since
	if err != nil {
		return hansard.Attachment{}, err
	}
	ses.attachments[a.Digest] = content.Bytes()
	return a, nil
}

// OpenAttachment implements [hansard.Store].
func (s *Store) OpenAttachment(ctx context.Context, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id, hansard.CheckDigest(digest)); err != nil {
		return nil, err
	}
	ses, err := s.findLocked(id)
	if err != nil {
		return nil, err
	}
	content, ok := ses.attachments[digest]
	if !ok {
		return nil, engine.NoAttachment(id, digest)
	}
	return engine.ReadAttachment(nopCloser{bytes.NewReader(content)}, id, hansard.Attachment{Digest: digest, Size: int64(len(content))}), nil
}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

// Attachments implements [hansard.Store].
func (s *Store) Attachments(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Attachment, error] {
	return func(yield func(hansard.Attachment, error) bool) {
		list, err := s.attachmentsOf(ctx, id)
		if err != nil {
			yield(hansard.Attachment{}, err)
			return
		}
		for _, a := range list {
			if !yield(a, nil) {
				return
			}
		}
	}
}

func (s *Store) attachmentsOf(ctx context.Context, id hansard.SessionID) (list []hansard.Attachment, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id); err != nil {
		return nil, err
	}
	ses, err := s.findLocked(id)
	if err != nil {
		return nil, err
	}
	for digest, content := range ses.attachments {
		list = append(list, hansard.Attachment{Digest: digest, Size: int64(len(content))})
	}
	slices.SortFunc(list, func(a, b hansard.Attachment) int { return cmp.Compare(a.Digest, b.Digest) })
	return list, nil
}

// attached is the size of an attachment.
func (ses *session) attached(digest string) (int64, bool) {
	content, ok := ses.attachments[digest]
	return int64(len(content)), ok
}
