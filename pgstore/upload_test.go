package pgstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/pgstore"
)

// endless is an upload that never ends. It signals when a given amount was read, and then
// blocks.
type endless struct {
	rest  int
	given func()
}

func (e *endless) Read(p []byte) (int, error) {
	if e.rest <= 0 {
		e.given()
		select {}
	}
	n := min(len(p), e.rest)
	e.rest -= n
	clear(p[:n])
	return n, nil
}

// uploadForever is a worker whose upload never ends.
func (w *work) uploadForever(ctx context.Context, s hansard.Store, say func(told)) {
	_, err := s.Attach(ctx, "s", &endless{w.Upload, func() { say(told{Session: "s"}) }})
	say(told{Wrong: err.Error()})
}

// TestKilledUpload: a process killed in the middle of an upload leaves nothing visible. Its rows
// are removed after a day, and not before, or with the session.
func TestKilledUpload(t *testing.T) {
	server := pgtest.Shared(t)
	url := server.Schema(t)
	s := open(t, url)
	defer s.Close()
	ctx := t.Context()
	if _, err := s.Create(ctx, "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	in := "FROM " + schemaOf(url) + "."
	left := func(rows, parts string) {
		t.Helper()
		server.Until(t, "SELECT (SELECT count(*) "+in+"hansard_attachments) = "+rows+" AND (SELECT count(*) "+in+"hansard_attachment_parts) = "+parts)
	}
	killUpload(t, work{URL: url, Upload: 3<<20 + 5})
	left("1", "3")
	for a, err := range s.Attachments(ctx, "s") {
		t.Errorf("there is an attachment: %+v, %v", a, err)
	}
	for f, err := range s.Verify(ctx, "") {
		if err != nil || f.Level != hansard.LevelOK {
			t.Errorf("%+v, %v", f, err)
		}
	}
	pgstore.SweepUploads(ctx, s)
	left("1", "3")
	server.Exec(t, "UPDATE "+schemaOf(url)+".hansard_attachments SET made = made - interval '25 hours'")
	open(t, url).Close() // it may be closed before the sweep is done
	pgstore.SweepUploads(ctx, s)
	left("0", "0")
	killUpload(t, work{URL: url, Upload: 3<<20 + 5})
	left("1", "3")
	if err := s.Delete(ctx, "s", ""); err != nil {
		t.Fatal(err)
	}
	left("0", "0")
}

// killUpload kills a process in the middle of its upload.
func killUpload(t *testing.T, w work) {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); ; {
		if !lines.Scan() {
			t.Fatal("it ended")
		}
		var said told
		if err := json.Unmarshal(lines.Bytes(), &said); err != nil || said.Wrong != "" {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		if said.Session == "s" {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}

// sampled is a reader of this many sufficiently varied bytes, which samples the memory in use.
type sampled struct {
	rest, at int
	sample   func()
}

func (r *sampled) Read(p []byte) (int, error) {
	if r.rest == 0 {
		return 0, io.EOF
	}
	n := min(len(p), r.rest)
	for i := range p[:n] {
		p[i] = byte((r.at + i) * 2654435761 >> 13)
	}
	if (r.at+n)>>22 != r.at>>22 {
		runtime.GC() // only live memory counts
		r.sample()
	}
	r.at, r.rest = r.at+n, r.rest-n
	return n, nil
}

// TestAttachmentMemory: the memory of an upload or a download does not grow with its size.
func TestAttachmentMemory(t *testing.T) {
	s := open(t, pgtest.Shared(t).Schema(t))
	defer s.Close()
	ctx := t.Context()
	if _, err := s.Create(ctx, "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	const size, limit = 64 << 20, 16 << 20
	before := peak(func(sample func()) { sample() })
	var a hansard.Attachment
	var err error
	in := peak(func(sample func()) { a, err = s.Attach(ctx, "s", &sampled{rest: size, sample: sample}) })
	if err != nil || a.Size != size {
		t.Fatalf("%+v, %v", a, err)
	}
	out := peak(func(sample func()) {
		r, err := s.OpenAttachment(ctx, "s", a.Digest)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		want := &sampled{rest: size, sample: sample}
		got, expected := make([]byte, 64<<10), make([]byte, 64<<10)
		for {
			n, err := r.Read(got)
			io.ReadFull(want, expected[:n])
			if string(got[:n]) != string(expected[:n]) {
				t.Fatalf("other bytes before %d", want.at)
			}
			if err == io.EOF && want.rest == 0 {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Logf("%d MB take %d kB up and %d kB down", size>>20, (in-before)>>10, (out-before)>>10)
	if in > before+limit || out > before+limit {
		t.Errorf("%d MB take %d MB up and %d MB down", size>>20, (in-before)>>20, (out-before)>>20)
	}
}
