package httpd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore"
)

// TestDamagedAttachment: nobody gets a whole answer with other bytes than were attached. A small
// attachment is answered with the damage, a larger one is broken off; what needs no whole content
// works as before.
func TestDamagedAttachment(t *testing.T) {
	for _, size := range []int{1, 1000, 64 << 10, 64<<10 + 1, 300_000} {
		for _, at := range []int{0, size - 1} {
			t.Run(fmt.Sprint(size, " bytes, damaged at ", at), func(t *testing.T) {
				dir := t.TempDir()
				store, err := filestore.Open(dir, nil)
				if err != nil {
					t.Fatal(err)
				}
				v := serve(t, store)
				v.must(201, "POST", "/v1/sessions", `{"id":"s"}`)
				content := bytes.Repeat([]byte("x"), size)
				var a hansard.Attachment
				v.must(201, "POST", "/v1/sessions/s/attachments", string(content)).into(t, &a)
				path := "/v1/sessions/s/attachments/" + a.Digest
				if got := v.must(200, "GET", path, ""); got.body != string(content) {
					t.Fatalf("before the damage: %d bytes", len(got.body))
				}
				files, err := filepath.Glob(filepath.Join(dir, "attachments", "*", "*"))
				if err != nil || len(files) != 1 {
					t.Fatalf("the store has %q, %v", files, err)
				}
				content[at] ^= 1
				if err := os.WriteFile(files[0], content, 0o600); err != nil {
					t.Fatal(err)
				}

				got, err := v.try("GET", path, "")
				if small := size <= 64<<10; small && (err != nil || got.status != 503 || got.problem() != "damaged" || got.header.Get("Repr-Digest") != "") {
					t.Errorf("it is answered %d %v %.200q, %v", got.status, got.header, got.body, err)
				} else if !small {
					if !errors.Is(err, io.ErrUnexpectedEOF) || got.status != 200 || len(got.body) >= size {
						t.Errorf("%d bytes are answered with %d, %v", len(got.body), got.status, err)
					}
					eventually(t, "the log says so", func() bool { return strings.Contains(v.log.String(), "an answer is broken off") })
				}
				for _, headers := range [][]string{{"If-None-Match", `"another"`}, {"Range", "bytes=0-", "If-Range", `"another"`}} {
					if got, err := v.try("GET", path, "", headers...); err == nil {
						t.Errorf("%s: %d bytes are answered with %d", headers, len(got.body), got.status)
					}
				}

				v.must(304, "GET", path, "", "If-None-Match", `"`+a.Digest+`"`)
				if got := v.must(200, "HEAD", path, ""); got.header.Get("Content-Length") != fmt.Sprint(size) {
					t.Errorf("HEAD says %v", got.header)
				}
				for _, part := range []string{fmt.Sprintf("bytes=%d-", at), "bytes=0-"} {
					if got := v.must(206, "GET", path, "", "Range", part); !strings.HasSuffix(string(content), got.body) || got.body == "" {
						t.Errorf("%s: %d other bytes", part, len(got.body))
					}
				}
				if size > 1 {
					v.must(206, "GET", path, "", "Range", fmt.Sprintf("bytes=0-0,%d-", size-1))
				}
			})
		}
	}
}
