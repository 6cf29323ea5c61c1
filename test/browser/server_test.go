package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/httpd"
	"hansard/httpd/web"
	"hansard/memstore"
)

const token = "a-token-for-the-tests-of-the-page-0123456789"

// tokenFile is a file with the token, readable by its owner only.
func tokenFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serve serves a new store in this process: the whole server and the page.
func serve(t testing.TB) (hansard.Store, string) {
	t.Helper()
	s, server := newServer(t)
	return s, listen(t, server)
}

func newServer(t testing.TB) (hansard.Store, *httpd.Server) {
	s := memstore.New()
	server := httpd.New(s, httpd.Options{Access: httpd.Single(token), Page: web.Handler()})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // the tab may still be open
		s.Close()
	})
	return s, server
}

// listen gives a handler an address. It is closed after the tabs, which are opened later, so that
// their last messages are not caused by that.
func listen(t testing.TB, h http.Handler) string {
	l := httptest.NewServer(h)
	t.Cleanup(func() {
		l.CloseClientConnections()
		l.Close()
	})
	return l.URL
}

// append1 appends one event and returns its seq.
func append1(t testing.TB, s hansard.Store, id string, e hansard.Event) hansard.Seq {
	t.Helper()
	r, err := s.Append(t.Context(), hansard.SessionID(id), hansard.Batch{Create: true, Events: []hansard.Event{e}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Last
}

// says is a message.
func says(role, author string, data any) hansard.Event {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	return hansard.Event{Role: role, Author: author, Data: raw}
}

// process is the real server: "hansard serve" on a store in a directory.
type process struct {
	*testing.T
	store, address string
	cmd            *exec.Cmd
	log            *bytes.Buffer
}

// startServer starts one on a free port.
func startServer(t *testing.T) *process {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s := &process{T: t, store: filepath.Join(t.TempDir(), "store"), address: address}
	s.start()
	t.Cleanup(func() { s.kill() })
	return s
}

func (s *process) url() string { return "http://" + s.address }

// start starts the server, on the same port each time, and waits until it answers.
func (s *process) start() {
	s.Helper()
	s.log = &bytes.Buffer{}
	s.cmd = exec.Command(command, "serve", "--store", s.store, "--listen", s.address, "--token-from", tokenFile(s.T))
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for {
		c, err := net.DialTimeout("tcp", s.address, time.Second)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("the server does not answer: %v\n%s", err, s.log)
		}
		time.Sleep(20 * time.Millisecond) // between two attempts
	}
}

// kill ends the server at once, as a crash would.
func (s *process) kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	var exit *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &exit) && !strings.Contains(err.Error(), "already called") {
		s.Error(err)
	}
}

// hansard runs the command on the store, beside the server.
func (s *process) hansard(stdin string, args ...string) string {
	s.Helper()
	cmd := exec.Command(command, append(args, "--store", s.store)...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "HANSARD_TOKEN="+token)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("hansard %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
