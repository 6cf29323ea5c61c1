package httpd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"hansard"
	"hansard/internal/wire"
)

// Attachments over HTTP are streamed in and out, with only a piece of them in memory. They
// are untrusted content, so a browser must never guess their type, nor run them as part of
// the page.

// attach stores a body as an attachment of a session.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return wire.NewProblem("wrong-media-type", "compressed bodies are not read", "send it as it is")
	}
	if r.ContentLength > hansard.MaxAttachmentBytes {
		return tooLarge(hansard.MaxAttachmentBytes)
	}
	want, err := reprDigest(r.Header.Get("Repr-Digest"))
	if err != nil {
		return err
	}
	who := callerOf(r.Context())
	if err := who.account.take(anUpload); err != nil {
		return err
	}
	defer who.account.give(anUpload)
	// Only callers that may read learn whether it was already there.
	there := want != "" && who.Rights.allows(Read) && s.has(r, want)
	body := &upload{ctx: r.Context(), control: http.NewResponseController(w), r: r.Body, began: time.Now(), patience: s.timing.body, want: want}
	a, err := s.store.Attach(r.Context(), sessionID(r), body.hashed())
	switch {
	case body.err != nil && ended(r.Context()) != nil:
		return ended(r.Context())
	case errors.Is(body.err, os.ErrDeadlineExceeded):
		return wire.NewProblem("timeout", "the attachment arrives too slowly", fmt.Sprintf("send at least %d bytes a second", slowestUpload))
	case body.err != nil && body.err != io.EOF && err != nil:
		var p *wire.Problem
		if errors.As(body.err, &p) {
			return p
		}
		return wire.NewProblem("malformed", "the body ended before it was complete", "send it again")
	case err != nil:
		return err
	}
	_ = body.control.SetReadDeadline(time.Time{})
	w.Header().Set("Location", "/v1/sessions/"+url.PathEscape(string(sessionID(r)))+"/attachments/"+a.Digest)
	status := http.StatusCreated
	if there {
		status = http.StatusOK
	}
	return writeJSON(w, status, a)
}

// has reports whether a session has an attachment.
func (s *Server) has(r *http.Request, digest string) bool {
	f, err := s.store.OpenAttachment(r.Context(), sessionID(r), digest)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// reprDigest reads the header Repr-Digest (RFC 9530): the digest that the sender claims.
func reprDigest(header string) (string, error) {
	if header == "" {
		return "", nil
	}
	for _, item := range strings.Split(header, ",") {
		algorithm, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		if algorithm != "sha-256" {
			continue
		}
		sum, err := base64.StdEncoding.DecodeString(strings.Trim(value, ":"))
		if err != nil || len(sum) != 32 || len(value) < 2 || value[0] != ':' {
			break
		}
		return hansard.DigestPrefix + hex.EncodeToString(sum), nil
	}
	return "", &hansard.InvalidError{Field: "Repr-Digest", Reason: "it has no sha-256=:BASE64: of 32 bytes"}
}

// slowestUpload is how many bytes per second of an attachment have to arrive on average,
// after an initial grace period: a client that sends a byte now and then must not keep its
// slot forever.
const slowestUpload = 16 << 10

// upload is a body on its way into the store.
type upload struct {
	ctx      context.Context // ends with the token, which may be withdrawn
	control  *http.ResponseController
	r        io.Reader
	began    time.Time
	patience time.Duration
	want     string // the digest that the sender announced
	got      int64
	err      error // of reading it
}

func (u *upload) Read(p []byte) (int, error) {
	if u.err = u.ctx.Err(); u.err != nil {
		return 0, u.err // without moving the deadline that ended it
	}
	_ = u.control.SetReadDeadline(u.began.Add(u.patience + time.Duration(u.got/slowestUpload)*time.Second))
	n, err := u.r.Read(p)
	u.got += int64(n)
	if err != nil {
		u.err = err
	}
	return n, err
}

// hashed is the body; it ends in an error if its digest is not the announced one.
func (u *upload) hashed() io.Reader {
	if u.want == "" {
		return u
	}
	return &compared{u: u, sum: sha256.New()}
}

// compared is an upload whose digest the sender has announced. If the digest differs it
// ends in an error, so that nothing is stored.
type compared struct {
	u   *upload
	sum hash.Hash
}

func (c *compared) Read(p []byte) (int, error) {
	n, err := c.u.Read(p)
	c.sum.Write(p[:n])
	if err == io.EOF && hansard.DigestPrefix+hex.EncodeToString(c.sum.Sum(nil)) != c.u.want {
		c.u.err = wire.NewProblem("malformed", "the body has another digest than Repr-Digest says", "send it again")
		return n, c.u.err
	}
	return n, err
}

// getAttachment answers with an attachment, or parts of it.
func (s *Server) getAttachment(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "media_type", "name")
	media, name := p.text("media_type"), p.text("name")
	if p.err != nil {
		return p.err
	}
	digest := r.PathValue("digest")
	f, err := s.store.OpenAttachment(r.Context(), sessionID(r), digest)
	if errors.Is(err, hansard.ErrNoAttachment) {
		problem := *wire.ProblemOf(err)
		problem.Status = http.StatusNotFound
		return &problem
	}
	if err != nil {
		return err
	}
	defer f.Close()
	shown := harmless[media]
	if !shown {
		media = "application/octet-stream"
	}
	if media == "text/plain" {
		text, err := isUTF8(f)
		if err != nil {
			return err
		}
		if text {
			media += "; charset=utf-8" // without it browsers guess, usually an encoding of one byte
		}
	}
	whole := &wholeReader{AttachmentReader: f, to: w.(*recorder)}
	var content io.ReadSeeker = whole
	if r.Method == http.MethodGet && f.Size() <= heldAttachment && r.Header.Get("Range") == "" && len(whole.to.known) == 0 {
		b, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		content = bytes.NewReader(b)
	}
	disposition := "attachment"
	if shown {
		disposition = "inline"
	}
	if name != "" {
		disposition = mime.FormatMediaType(disposition, map[string]string{"filename": name})
	}
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Disposition", disposition)
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "private, no-cache")
	h.Set("ETag", `"`+digest+`"`)
	if sum, err := hex.DecodeString(strings.TrimPrefix(digest, hansard.DigestPrefix)); err == nil {
		h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum)+":")
	}
	http.ServeContent(w, r, "", time.Time{}, content)
	if whole.to.status != http.StatusOK || whole.err == nil {
		return nil
	}
	if err := because(r.Context(), whole.err); !errors.Is(err, context.Canceled) {
		p := s.told(r, err)
		if errors.Is(err, hansard.ErrDamaged) { // the client isn't told
			s.log.Error("an answer is broken off", "request", strings.TrimPrefix(p.Instance, "urn:uuid:"), "error", wire.Scrub(err.Error()))
		}
	}
	return whole.err // part of the answer is out, so the connection is cut
}

// isUTF8 tells whether the beginning of an attachment is UTF-8, and goes back there.
func isUTF8(f hansard.AttachmentReader) (bool, error) {
	begin := make([]byte, 4<<10)
	n, err := io.ReadFull(f, begin)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return false, err
	}
	if begin = begin[:n]; int64(n) < f.Size() {
		for i := 1; i <= utf8.UTFMax && i <= n; i++ { // the last character may be cut
			if utf8.RuneStart(begin[n-i]) {
				begin = begin[:n-i]
				break
			}
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return utf8.Valid(begin), err
}

// heldAttachment is the size up to which an attachment is read before it is answered: if it is
// damaged, the answer can still say so.
const heldAttachment = 64 << 10

// wholeReader is an attachment on its way into an answer. http.ServeContent reads exactly as many
// bytes as it has announced, but the digest is compared by the read after them, so the last bytes
// are held back until that was done: whoever gets a whole answer gets what was attached.
type wholeReader struct {
	hansard.AttachmentReader
	to  *recorder
	at  int64
	err error // of reading it, for a whole answer
}

func (r *wholeReader) Read(p []byte) (int, error) {
	n, err := r.AttachmentReader.Read(p)
	r.at += int64(n)
	// The status was sent before the first read, even where the parts of several ranges are read
	// by a goroutine of their own: it can't go on until the answer takes what precedes them.
	if r.to.status != http.StatusOK {
		return n, err // a range: there is nothing to compare
	}
	if err == nil && r.at >= r.Size() {
		_, err = r.AttachmentReader.Read(make([]byte, 1))
	}
	if err != nil && err != io.EOF {
		r.err = err
		return 0, err
	}
	return n, err
}

func (r *wholeReader) Seek(offset int64, whence int) (int64, error) {
	at, err := r.AttachmentReader.Seek(offset, whence)
	if err == nil {
		r.at = at
	}
	return at, err
}

// harmless are the media types that a browser may display: pictures that can't
// contain scripts, and plain text.
var harmless = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true, "image/avif": true, "text/plain": true}

// listAttachments lists what was attached to a session.
func (s *Server) listAttachments(w http.ResponseWriter, r *http.Request) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	if wantsLines(r) {
		out := newLines(w)
		for a, err := range s.store.Attachments(r.Context(), sessionID(r)) {
			if err != nil {
				if err := s.endLines(out, r, err); err != nil {
					return err
				}
				break
			}
			line, _ := json.Marshal(a) // strings and a number: can't fail
			out.chunk = append(append(out.chunk, line...), '\n')
			if err := out.grown(); err != nil {
				return err
			}
		}
		return out.flush()
	}
	list := []hansard.Attachment{}
	for a, err := range s.store.Attachments(r.Context(), sessionID(r)) {
		if err != nil {
			return err
		}
		if list = append(list, a); len(list) > maxListedAttachments {
			return &hansard.InvalidError{Field: "attachments", TooLarge: true, Reason: "there are more than fit into one answer; ask for lines: Accept: application/x-ndjson"}
		}
	}
	return writeJSON(w, http.StatusOK, struct {
		Attachments []hansard.Attachment `json:"attachments"`
	}{list})
}

const maxListedAttachments = 10_000
