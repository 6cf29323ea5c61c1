package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore"
)

// cutState is a store as a power cut may leave it: the logs are older than the journal, and only
// the journal has what was acknowledged last. events is how many each session must have; the last
// sessions have no log at all.
func cutState(t *testing.T, dir string) (store string, events map[string]int) {
	t.Helper()
	const old, late = 20, 5
	live := filepath.Join(dir, "live")
	events = map[string]int{}
	say := func(s *filestore.Store, id string, n int) {
		for range n {
			_, err := s.Append(t.Context(), hansard.SessionID(id), hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte(`"x"`)}}})
			must(t, err)
			events[id]++
		}
	}
	s := open(t, live)
	for i := range old {
		say(s, fmt.Sprint("old", i), 3)
	}
	must(t, s.Close())
	store = filepath.Join(dir, "cut")
	must(t, os.MkdirAll(store, 0o755))
	must(t, os.CopyFS(filepath.Join(store, "sessions"), os.DirFS(filepath.Join(live, "sessions"))))
	s = open(t, live)
	for i := range old {
		say(s, fmt.Sprint("old", i), 6)
	}
	for i := range late {
		say(s, fmt.Sprint("late", i), 2)
	}
	journal, err := os.ReadFile(filepath.Join(live, "journal"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(store, "journal"), journal, 0o600))
	must(t, s.Close())
	return store, events
}

// showsAll runs one of the reading commands and compares the result with what was acknowledged.
// The session growing, if any, is being appended to: it may have one event more.
func showsAll(t *testing.T, n int, events map[string]int, id, growing string, cmd func(args ...string) *exec.Cmd) {
	t.Helper()
	read := func(args ...string) []string {
		r, err := execute(t.Context(), cmd(args...))
		if err != nil || r.code != 0 {
			t.Errorf("%v: exit %d: %s, %v", args, r.code, r.stderr, err)
		}
		return strings.Split(strings.TrimSpace(r.stdout), "\n")
	}
	last := func(line string) (int, string) {
		var info struct {
			ID      string `json:"id"`
			LastSeq int    `json:"last_seq"`
		}
		if err := json.Unmarshal([]byte(line), &info); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		return info.LastSeq, info.ID
	}
	switch n % 4 {
	case 0:
		if got := read("show", id, "--json"); len(got) != events[id] {
			t.Errorf("show %s gives %d events, %d were acknowledged", id, len(got), events[id])
		}
	case 1:
		if got, _ := last(read("stat", id, "--json")[0]); got != events[id] {
			t.Errorf("stat %s says seq %d, %d were acknowledged", id, got, events[id])
		}
	case 2:
		lines := read("ls", "--json")
		if len(lines) != len(events) {
			t.Errorf("ls gives %d sessions of %d", len(lines), len(events))
		}
		for _, line := range lines {
			if got, id := last(line); got != events[id] && (id != growing || got != events[id]+1) {
				t.Errorf("ls says seq %d of %s, %d were acknowledged", got, id, events[id])
			}
		}
	default:
		want := fmt.Sprintf(`"events":%d`, events[id])
		if got := strings.Join(read("verify", id, "--json"), "\n"); !strings.Contains(got, want) {
			t.Errorf("verify %s says %s, want %s", id, got, want)
		}
	}
}

// slowly is the program on a disk with slow syncs: delay says how long they take, in µs, and which
// of each thread.
func slowly(delay string, args ...string) *exec.Cmd {
	strace := []string{"-f", "-qq", "-o", os.DevNull, "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:" + delay, "--", program}
	return exec.Command("strace", append(strace, args...)...)
}

// TestReaderRecoversSlowly: a command that reads, and is the first to open the store, does not
// wait for its own recovery for long on a slow disk, and misses nothing acknowledged either. The
// slow syncs are those before anything is written to a log.
func TestReaderRecoversSlowly(t *testing.T) {
	needsStrace(t)
	for n := range 4 { // the commands of showsAll
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			store, events := cutState(t, memDir(t))
			showsAll(t, n, events, "late4", "", func(args ...string) *exec.Cmd {
				return slowly("delay_enter=1500000:when=1..2", append(args, "--store", store)...)
			})
		})
	}
}

// TestReadersBesideRecovery: while the first process to open a store recovers it on a slow disk,
// no reader misses anything acknowledged.
func TestReadersBesideRecovery(t *testing.T) {
	needsStrace(t)
	store, events := cutState(t, memDir(t))
	// Recovery syncs every log.
	p := start(t, slowly("delay_enter=200000", "append", "old0", "later", "--store", store), nil)
	eventually(t, "the first process has begun to recover", func() bool {
		instances, _ := os.ReadDir(filepath.Join(store, "instances"))
		return len(instances) > 0
	})
	var reads atomic.Int64
	var all sync.WaitGroup
	for i, id := range []string{"old0", "old19", "late0", "late4"} {
		if id == "old0" {
			id = "old1" // the first process appends to it
		}
		all.Go(func() {
			for n := i; p.running(); n++ {
				showsAll(t, n, events, id, "old0", func(args ...string) *exec.Cmd { return command(store, args...) })
				reads.Add(1)
			}
		})
	}
	all.Wait()
	if code := p.exit(); code != 0 {
		t.Errorf("the first process: exit %d: %s", code, p.stderr.String())
	}
	t.Logf("%d reads", reads.Load())
	if reads.Load() < 20 {
		t.Errorf("only %d reads beside the recovery", reads.Load())
	}
	events["old0"]++
	showsAll(t, 2, events, "", "", func(args ...string) *exec.Cmd { return command(store, args...) })
}

// TestReadOnlyBeforeRecovery: on a read-only mount nobody recovers, and likewise for a user who
// may only read. Everything is shown all the same.
func TestReadOnlyBeforeRecovery(t *testing.T) {
	root := os.Geteuid() == 0
	dir := memDir(t)
	must(t, os.Chmod(dir, 0o755))
	store, events := cutState(t, dir)
	t.Run("mount", func(t *testing.T) {
		if !root {
			skip(t, "mounting a file system read-only needs root")
		}
		readOnly := filepath.Join(dir, "readonly")
		must(t, os.Mkdir(readOnly, 0o755))
		if err := syscall.Mount(store, readOnly, "", syscall.MS_BIND, ""); err != nil {
			skip(t, "a directory can't be mounted: %v", err)
		}
		t.Cleanup(func() { must(t, syscall.Unmount(readOnly, 0)) })
		must(t, syscall.Mount("", readOnly, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
		for n := range 8 {
			showsAll(t, n, events, []string{"old3", "late3"}[n/4], "", func(args ...string) *exec.Cmd { return command(readOnly, args...) })
		}
	})
	t.Run("user", func(t *testing.T) {
		hansard := filepath.Join(dir, "hansard")
		b, err := os.ReadFile(program)
		must(t, err)
		must(t, os.WriteFile(hansard, b, 0o755))
		// Root reads it as another user; any other user gives up the right to write.
		chmod := func(dir, file os.FileMode) {
			must(t, filepath.Walk(store, func(path string, info os.FileInfo, err error) error {
				if err == nil && info.IsDir() {
					return os.Chmod(path, dir)
				}
				return os.Chmod(path, file)
			}))
		}
		chmod(0o555, 0o444)
		defer chmod(0o755, 0o644) // so that it can be removed
		for n := range 8 {
			showsAll(t, n, events, []string{"old3", "late3"}[n/4], "", func(args ...string) *exec.Cmd {
				cmd := command(store, args...)
				cmd.Path, cmd.Args[0] = hansard, hansard
				if root {
					cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
				}
				return cmd
			})
		}
	})
	if _, err := os.Stat(filepath.Join(store, "control")); err == nil {
		t.Error("somebody has written to the store")
	}
}
