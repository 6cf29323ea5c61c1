package httpd_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/httpd"
	"hansard/memstore"
)

// TestTextCharset: an attachment whose beginning is UTF-8 is served as that, and other text without
// a word about its encoding. A character may be cut where the beginning ends.
func TestTextCharset(t *testing.T) {
	v := serve(t, memstore.New())
	v.must(201, "POST", "/v1/sessions", `{"id":"s"}`)
	const path = "/v1/sessions/s/attachments"
	for content, want := range map[string]string{
		"":                               "text/plain; charset=utf-8",
		"äöü €":                          "text/plain; charset=utf-8",
		strings.Repeat("x", 4095) + "€€": "text/plain; charset=utf-8",
		strings.Repeat("€", 100_000):     "text/plain; charset=utf-8",
		"\xe4\xf6\xfc":                   "text/plain",
		"x\xe4":                          "text/plain",
		strings.Repeat("\xe4", 100_000):  "text/plain",
	} {
		var a hansard.Attachment
		v.must(201, "POST", path, content).into(t, &a)
		at := path + "/" + a.Digest + "?media_type=text/plain"
		if got := v.must(200, "GET", at, ""); got.header.Get("Content-Type") != want || got.body != content {
			t.Errorf("%.10q: %s", content, got.header.Get("Content-Type"))
		}
		if got := v.must(200, "HEAD", at, ""); got.header.Get("Content-Type") != want {
			t.Errorf("HEAD of %.10q: %s", content, got.header.Get("Content-Type"))
		}
	}
}

// TestAttachments: bytes are uploaded and downloaded, whole and in ranges, and a browser is never
// allowed to run them.
func TestAttachments(t *testing.T) {
	v := serve(t, memstore.New())
	v.must(201, "POST", "/v1/sessions", `{"id":"s"}`)
	const path = "/v1/sessions/s/attachments"
	content := "<script>alert(1)</script>" + strings.Repeat("0123456789", 1000)
	sum := sha256.Sum256([]byte(content))
	repr := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	digest := fmt.Sprintf("sha256:%x", sum)
	var a hansard.Attachment
	got := v.must(201, "POST", path, content, "Content-Type", "text/html", "Repr-Digest", repr)
	if got.into(t, &a); a.Digest != digest || a.Size != int64(len(content)) || got.header.Get("Location") != path+"/"+digest {
		t.Fatalf("%+v at %s", a, got.header.Get("Location"))
	}
	v.must(200, "POST", path, content, "Repr-Digest", repr)
	if got := v.must(200, "GET", path, ""); got.body != fmt.Sprintf(`{"attachments":[{"digest":%q,"size":%d}]}`, digest, len(content))+"\n" {
		t.Errorf("the list is %s", got.body)
	}

	for _, c := range []struct{ query, media, disposition string }{
		{"", "application/octet-stream", "attachment"},
		{"?media_type=text/html&name=x.html", "application/octet-stream", "attachment; filename=x.html"},
		{"?media_type=image/svg%2Bxml", "application/octet-stream", "attachment"},
		{"?media_type=image/png", "image/png", "inline"},
		{"?media_type=text/plain&name=%22%0d%0aX-Evil%3A1", "text/plain; charset=utf-8", "inline; filename=\"\\\"\r\nX-Evil:1\""},
	} {
		got := v.must(200, "GET", path+"/"+digest+c.query, "")
		h := got.header
		if got.body != content || h.Get("Content-Type") != c.media || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Evil") != "" ||
			!strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || !strings.HasPrefix(h.Get("Content-Disposition"), strings.SplitN(c.disposition, ";", 2)[0]) || h.Get("Repr-Digest") != repr {
			t.Errorf("%s: %d bytes, %v", c.query, len(got.body), h)
		}
	}
	part := v.must(206, "GET", path+"/"+digest, "", "Range", "bytes=25-34")
	if part.body != "0123456789" || part.header.Get("Content-Range") != fmt.Sprintf("bytes 25-34/%d", len(content)) {
		t.Errorf("a part is %q, %s", part.body, part.header.Get("Content-Range"))
	}
	v.must(416, "GET", path+"/"+digest, "", "Range", "bytes=99999-")
	v.must(304, "GET", path+"/"+digest, "", "If-None-Match", `"`+digest+`"`)
	if got := v.must(200, "HEAD", path+"/"+digest, ""); got.header.Get("Content-Length") != fmt.Sprint(len(content)) {
		t.Errorf("HEAD says %v", got.header)
	}

	// Errors are reported, and nothing is stored.
	if got := v.ask("POST", path, "other bytes", "Repr-Digest", repr); got.status != 400 || !strings.Contains(got.body, "another digest") {
		t.Errorf("another digest: %d %s", got.status, got.body)
	}
	v.must(422, "POST", path, "x", "Repr-Digest", "sha-256=abc")
	v.must(415, "POST", path, "x", "Content-Encoding", "gzip")
	v.must(404, "POST", "/v1/sessions/none/attachments", "x")
	v.must(422, "GET", path+"/x", "")
	v.must(422, "GET", path+"/"+strings.ToUpper(digest), "")
	if got := v.ask("GET", path+"/sha256:"+strings.Repeat("0", 64), ""); got.status != 404 || got.problem() != "no-attachment" {
		t.Errorf("one that is not there: %d %s", got.status, got.body)
	}
	if got := v.ask("POST", "/v1/sessions/s/events", fmt.Sprintf(`{"events":[{"data":1,"attachments":[{"digest":"sha256:%s","size":1}]}]}`, strings.Repeat("0", 64))); got.status != 422 || got.problem() != "no-attachment" {
		t.Errorf("an event that names what is not there: %d %s", got.status, got.body)
	}
	if got := v.must(200, "GET", path, ""); strings.Count(got.body, "digest") != 1 {
		t.Errorf("after all that the list is %s", got.body)
	}
}

// TestUploadTellsReadersAlone: a token that may only append does not learn what the session has.
func TestUploadTellsReadersAlone(t *testing.T) {
	v := serve(t, memstore.New())
	v.must(201, "POST", "/v1/sessions", `{"id":"s"}`)
	sum := sha256.Sum256([]byte("known"))
	repr := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	for range 2 {
		v.must(201, "POST", "/v1/sessions/s/attachments", "known", append(v.as("appender"), "Repr-Digest", repr)...)
	}
	v.must(200, "POST", "/v1/sessions/s/attachments", "known", "Repr-Digest", repr)
}

// TestWithdrawnUpload: an endless upload ends when its token is withdrawn.
func TestWithdrawnUpload(t *testing.T) {
	v := withdrawable(t, memstore.New())
	v.must(201, "POST", "/v1/sessions", `{"id":"u"}`)
	conn, err := net.Dial("tcp", strings.TrimPrefix(v.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/sessions/u/attachments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", v.tokens["victim"], int64(3<<30))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for piece := make([]byte, 1000); ; {
			if _, err := conn.Write(piece); err != nil {
				return // the end
			}
			runtime.Gosched()
		}
	}()
	eventually(t, "it is under way", func() bool { return v.server.Busy() == 1 })
	v.withdraw()
	eventually(t, "nothing is under way", func() bool { return v.server.Busy() == 0 })
	select {
	case <-ended:
	case <-time.After(waitMax):
		t.Fatal("the connection takes more")
	}
	if list := v.must(200, "GET", "/v1/sessions/u/attachments", "").body; list != `{"attachments":[]}`+"\n" {
		t.Errorf("it left %s", list)
	}
}

// TestUploadsAreCounted: a token has a limited number of uploads at a time, so that clients that
// send slowly can't take all the capacity.
func TestUploadsAreCounted(t *testing.T) {
	v := serve(t, memstore.New())
	v.must(201, "POST", "/v1/sessions", `{"id":"s"}`)
	const most = 16
	var writers []*io.PipeWriter
	answers := make(chan int, most)
	for range most {
		r, w := io.Pipe()
		writers = append(writers, w)
		go func() {
			req, err := http.NewRequest("POST", v.url+"/v1/sessions/s/attachments", r)
			if err != nil {
				answers <- 0
				return
			}
			req.Header.Set("Authorization", "Bearer "+v.tokens["admin"])
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				answers <- 0
				return
			}
			res.Body.Close()
			answers <- res.StatusCode
		}()
		if _, err := w.Write(make([]byte, 64<<10)); err != nil { // more than the client buffers
			t.Fatal(err)
		}
	}
	// The last of them may have been sent but not counted yet: it must not be the one too many.
	eventually(t, "all are counted", func() bool { return v.server.Uploads() == most })
	if got := v.ask("POST", "/v1/sessions/s/attachments", "x"); got.problem() != "overloaded" {
		t.Errorf("one more upload: %d %s", got.status, got.body)
	}
	for _, w := range writers {
		w.Close()
	}
	for range most {
		if status := <-answers; status != 201 {
			t.Errorf("an upload that was counted: %d", status)
		}
	}
	v.must(201, "POST", "/v1/sessions/s/attachments", "x")
}

// TestSilentUpload: a client that goes silent in the middle of an upload gets an error, and
// nothing of the upload is kept.
func TestSilentUpload(t *testing.T) {
	store := memstore.New()
	if _, err := store.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	address, server, _ := hasty(t, store, arrive)
	got := talk(t, address, "POST /v1/sessions/s/attachments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-token-for-tests\r\nContent-Length: 100000\r\n\r\nbegin")
	if !strings.HasPrefix(got, "HTTP/1.1 408") || !strings.Contains(got, "/problems/timeout") || !strings.Contains(got, "bytes a second") {
		t.Errorf("it was answered %q", got)
	}
	eventually(t, "nothing is under way", func() bool { return server.Busy() == 0 })
	for a, err := range store.Attachments(t.Context(), "s") {
		t.Errorf("it left %+v, %v", a, err)
	}
}

// TestSilentDownload: a client that requests an attachment and reads nothing is cut off; it does
// not occupy the server or the store for ever.
func TestSilentDownload(t *testing.T) {
	store := &countedReaders{Store: memstore.New()}
	if _, err := store.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	a, err := store.Attach(t.Context(), "s", bytes.NewReader(make([]byte, 32<<20)))
	if err != nil {
		t.Fatal(err)
	}
	address, server, _ := hasty(t, store, httpd.Hurry{Arrive: waitMax, Stall: 300 * time.Millisecond, Grace: 100 * time.Millisecond, Beat: waitMax})
	conn, err := dialNarrow(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/sessions/s/attachments/%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-token-for-tests\r\n\r\n", a.Digest)
	if _, err := io.ReadFull(conn, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is under way", func() bool { return server.Busy() == 0 && store.open.Load() == 0 })
	if store.opened.Load() == 0 {
		t.Error("the attachment was never opened")
	}
	if n, err := io.Copy(io.Discard, conn); err == nil && n > 30<<20 {
		t.Errorf("all of it arrived: %d bytes", n)
	}
}

// countedReaders counts the attachments that are open.
type countedReaders struct {
	*memstore.Store
	open, opened atomic.Int64
}

func (c *countedReaders) OpenAttachment(ctx context.Context, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
	r, err := c.Store.OpenAttachment(ctx, id, digest)
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	c.opened.Add(1)
	return &countedReader{r, c}, nil
}

type countedReader struct {
	hansard.AttachmentReader
	c *countedReaders
}

func (r *countedReader) Close() error {
	r.c.open.Add(-1)
	return r.AttachmentReader.Close()
}
