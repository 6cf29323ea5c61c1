package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"net/http"

	"hansard"
	"hansard/engine"
)

// Attach implements [hansard.Store]. It is sent once, since a reader can't be read again.
// After an error it may still have been attached, which is harmless.
func (s *Store) Attach(ctx context.Context, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) {
	leave, err := s.enter(ctx, hansard.CheckID(id))
	if err != nil {
		return hansard.Attachment{}, err
	}
	defer leave()
	body := &givenReader{r: r, sum: sha256.New()}
	sending, cancel := s.until(ctx)
	defer cancel()
	res, _, err := s.once(sending, &request{method: http.MethodPost, path: sessionPath(id, "/attachments"), stream: body})
	if err == nil {
		defer res.Body.Close()
	}
	switch {
	case body.err != nil:
		return hansard.Attachment{}, body.err // of the caller's reader
	case ctx.Err() != nil:
		return hansard.Attachment{}, ctx.Err()
	case err != nil:
		return hansard.Attachment{}, s.ended(ctx, err)
	}
	var a hansard.Attachment
	if err := readAnswer(res, &a); err != nil {
		return hansard.Attachment{}, s.ended(ctx, &UnreachableError{s.name, err})
	}
	if sent := hansard.DigestPrefix + hex.EncodeToString(body.sum.Sum(nil)); a.Digest != sent {
		return hansard.Attachment{}, fmt.Errorf("%s has stored %s, and not %s, which was sent", s.name, a.Digest, sent)
	}
	return a, nil
}

// givenReader is what a caller attaches. Its errors are the caller's, not the network's.
type givenReader struct {
	r   io.Reader
	sum hash.Hash
	err error
}

func (g *givenReader) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	g.sum.Write(p[:n])
	if err != nil && err != io.EOF {
		g.err = err
	}
	return n, err
}

// OpenAttachment implements [hansard.Store]. If the connection breaks, a new one continues
// where it was.
func (s *Store) OpenAttachment(ctx context.Context, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
	leave, err := s.enter(ctx, hansard.CheckID(id), hansard.CheckDigest(digest))
	if err != nil {
		return nil, err
	}
	defer leave()
	path := sessionPath(id, "/attachments/"+digest)
	// The response to a HEAD has no body that could say what is wrong.
	res, _, err := s.do(ctx, &request{method: http.MethodGet, path: path, from: 0, part: true})
	if err != nil {
		return nil, s.ended(ctx, err)
	}
	r := &remoteAttachment{s: s, path: path, ctx: ctx, size: res.ContentLength, body: res.Body}
	if total := wholeSize(res); total >= 0 {
		r.size = total
	}
	if r.size < 0 {
		res.Body.Close()
		return nil, fmt.Errorf("%s does not say how long %s is", s.name, digest)
	}
	return engine.ReadAttachment(r, id, hansard.Attachment{Digest: digest, Size: r.size}), nil
}

// wholeSize is the size of the whole that a part is from; -1 if the response does not say.
func wholeSize(res *http.Response) int64 {
	var from, to, total int64
	if _, err := fmt.Sscanf(res.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &total); err != nil {
		return -1
	}
	return total
}

// remoteAttachment reads an attachment by ranges, one connection at a time.
type remoteAttachment struct {
	s    *Store
	path string
	ctx  context.Context
	size int64
	at   int64
	body io.ReadCloser // nil if none is open
}

func (r *remoteAttachment) Read(p []byte) (int, error) {
	for tries := 0; ; tries++ {
		if r.at >= r.size {
			return 0, io.EOF
		}
		if r.body == nil {
			res, _, err := r.s.do(r.ctx, &request{method: http.MethodGet, path: r.path, from: r.at, part: true})
			if err != nil {
				return 0, r.s.ended(r.ctx, err)
			}
			if res.StatusCode != http.StatusPartialContent && r.at > 0 {
				res.Body.Close()
				return 0, fmt.Errorf("%s does not give parts", r.s.name)
			}
			r.body = res.Body
		}
		n, err := r.body.Read(p)
		r.at += int64(n)
		if err != nil {
			r.body.Close()
			r.body = nil
		}
		switch {
		case n > 0:
			return n, nil
		case r.ctx.Err() != nil:
			return 0, r.ctx.Err()
		case err != nil && err != io.EOF && tries > 5, err == io.EOF && tries > 5:
			return 0, &UnreachableError{r.s.name, errors.Join(io.ErrUnexpectedEOF, err)}
		}
	}
}

func (r *remoteAttachment) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, errors.New("a position before the beginning")
	}
	if offset != r.at {
		r.Close()
		r.at = offset
	}
	return offset, nil
}

func (r *remoteAttachment) Close() error {
	if r.body == nil {
		return nil
	}
	err := r.body.Close()
	r.body = nil
	return err
}

// Attachments implements [hansard.Store].
func (s *Store) Attachments(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Attachment, error] {
	return func(yield func(hansard.Attachment, error) bool) {
		leave, err := s.enter(ctx, hansard.CheckID(id))
		if err != nil {
			yield(hansard.Attachment{}, err)
			return
		}
		defer leave()
		listing, cancel := s.until(ctx)
		defer cancel()
		given := false
		err = s.lines(listing, func() *request {
			if given {
				return nil // not continued: the rest may have changed since
			}
			return &request{method: http.MethodGet, path: sessionPath(id, "/attachments"), lines: true}
		}, func(object []byte) (bool, error) {
			given = true
			var a hansard.Attachment
			if err := json.Unmarshal(object, &a); err != nil {
				return false, fmt.Errorf("%s sends an attachment that can't be read: %w", s.name, err)
			}
			return yield(a, nil), nil
		})
		if err != nil {
			yield(hansard.Attachment{}, s.ended(ctx, err))
		}
	}
}
