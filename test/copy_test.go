//go:build unix

package test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/client"
	"hansard/filestore"
	"hansard/internal/pgtest"
	"hansard/storetest"
)

// end is a store at one end of a copy.
type end struct {
	address string                                  // as copy is given it
	open    func(t *testing.T) hansard.Importer     // the data itself, not through the server
	look    func(t *testing.T) (s hansard.Importer) // through the address
	// settle returns when nothing sent by a killed copy is in flight any more.
	settle func(t *testing.T)
}

// TestCopyPostgres: copy transfers sessions between PostgreSQL and servers, and between files and
// servers on PostgreSQL. It is killed in the middle of a session; restarted, it resumes where it
// was, and at the end both ends are the same.
func TestCopyPostgres(t *testing.T) {
	files := func(t *testing.T) end { return filesEnd(newStore(t)) }
	postgres := func(t *testing.T) end { return postgresEnd(pgtest.Shared(t).Schema(t)) }
	serving := func(of func(*testing.T) end) func(*testing.T) end {
		return func(t *testing.T) end { return serverEnd(t, of(t)) }
	}
	for name, ends := range map[string][2]func(*testing.T) end{
		"from a server on files to PostgreSQL": {serving(files), postgres},
		"from PostgreSQL to a server on files": {postgres, serving(files)},
		"from a server on PostgreSQL to files": {serving(postgres), files},
		"from files to a server on PostgreSQL": {files, serving(postgres)},
	} {
		t.Run(name, func(t *testing.T) { copyKilled(t, ends[0](t), ends[1]) })
	}
}

func filesEnd(dir string) end {
	open := func(t *testing.T) hansard.Importer {
		t.Helper()
		s, err := filestore.Open(dir, nil)
		must(t, err)
		return s
	}
	return end{dir, open, open, func(*testing.T) {}} // what was in flight died with it
}

func postgresEnd(url string) end {
	open := func(t *testing.T) hansard.Importer { return openPostgres(t, url) }
	// Its connections have a unique name: the database closes them when it has done what they
	// were sent.
	name := fmt.Sprintf("copy-%d", time.Now().UnixNano())
	return end{url + "&application_name=" + name, open, open, func(t *testing.T) {
		t.Helper()
		pgtest.Shared(t).Until(t, fmt.Sprintf("SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = '%s'", name))
	}}
}

func serverEnd(t *testing.T, of end) end {
	t.Helper()
	s := startServer(t, of.address, "--token-file", filepath.Join(t.TempDir(), "tokens"))
	address := "http://" + s.address
	return end{address, of.open, func(t *testing.T) hansard.Importer {
		t.Helper()
		c, err := client.New(address, &client.Options{Token: serverToken})
		must(t, err)
		return c
	}, func(t *testing.T) {
		t.Helper()
		s.signal(syscall.SIGTERM) // it finishes what it was sent
		if code := s.exit(); code != 0 {
			t.Errorf("the server: exit code %d, stderr %s", code, s.stderr)
		}
		s.begin()
	}}
}

// longSession takes a while to copy; it sorts before the others.
const longSession = hansard.SessionID("0-long")

func copyKilled(t *testing.T, src end, newDst func(*testing.T) end) {
	from := src.open(t) // open to the end: closing a file store releases its turns
	defer from.Close()
	total := fillLong(t, from)
	for range 10 {
		dst := newDst(t)
		p := start(t, copyCommand(src, dst), nil)
		at := killWhileCopying(t, p, dst)
		if at == total {
			continue // it was too fast this time
		}
		t.Logf("killed when it had copied %d of %d events", at, total)
		again := run(t, copyCommand(src, dst))
		if again.code != 0 {
			t.Fatalf("copy, begun again: exit code %d\n%s%s", again.code, again.stdout, again.stderr)
		}
		resumed(t, again.stdout, from, total-at)
		to := dst.open(t)
		defer to.Close()
		storetest.CheckCopy(t, from, to)
		return
	}
	t.Error("copy was always done before it could be killed")
}

// fillLong fills a store with sessions of all kinds and a long one, of batches with and without
// keys, and returns the number of events in the long one.
func fillLong(t *testing.T, s hansard.Store) hansard.Seq {
	t.Helper()
	storetest.FillForCopy(t, s)
	return fillOnlyLong(t, s)
}

// fillOnlyLong makes the long session.
func fillOnlyLong(t *testing.T, s hansard.Store) hansard.Seq {
	t.Helper()
	total := 0
	for n := range 20 {
		b := hansard.Batch{Events: storetest.Marked("long", n, 1000, 100), Create: true}
		if n%2 == 0 {
			b.Key = fmt.Sprint("long/", n)
		}
		_, err := s.Append(t.Context(), longSession, b)
		must(t, err)
		total += len(b.Events)
	}
	return hansard.Seq(total)
}

func copyCommand(src, dst end) *exec.Cmd {
	cmd := exec.Command(program, "copy", src.address, dst.address, "--json")
	cmd.Env = append(cmd.Environ(), "HANSARD_TOKEN="+serverToken)
	return cmd
}

// killWhileCopying kills copy when part of the long session is there, and returns how much is
// there then.
func killWhileCopying(t *testing.T, p *process, dst end) (at hansard.Seq) {
	t.Helper()
	s := dst.look(t)
	defer s.Close()
	eventually(t, "some of the session is copied", func() bool {
		info, err := s.Stat(t.Context(), longSession)
		return err == nil && info.LastSeq > 0
	})
	p.kill()
	p.exit()
	dst.settle(t)
	info, err := s.Stat(t.Context(), longSession)
	must(t, err)
	return info.LastSeq
}

// resumed checks the output of the restarted copy: everything is the same, and of the long
// session only the missing part was copied.
func resumed(t *testing.T, out string, from hansard.Store, missing hansard.Seq) {
	t.Helper()
	sessions, want := 0, 0
	for _, err := range from.(hansard.Exporter).Origins(t.Context(), "") {
		must(t, err)
		want++
	}
	for line := range strings.Lines(out) {
		var c struct {
			Session hansard.SessionID
			Same    bool
			Added   hansard.Seq
		}
		must(t, json.Unmarshal([]byte(line), &c))
		if sessions++; !c.Same || c.Session == longSession && c.Added != missing {
			t.Errorf("copy, begun again, says %s; %d events were missing", line, missing)
		}
	}
	if sessions != want {
		t.Errorf("copy, begun again, tells of %d sessions, want %d: %s", sessions, want, out)
	}
}
