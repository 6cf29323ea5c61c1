package test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user that owns nothing here.
const nobody = 65534

// usersStore is a store owned by nobody, who can also run the program.
type usersStore struct {
	t       *testing.T
	dir     string
	program string
}

func newUsersStore(t *testing.T) *usersStore {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, "only root can be two users")
	}
	top, err := os.MkdirTemp("", "hansard-user-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(top) })
	must(t, os.Chmod(top, 0o755))
	u := &usersStore{t: t, dir: filepath.Join(top, "store"), program: filepath.Join(top, "hansard")}
	b, err := os.ReadFile(program)
	must(t, err)
	must(t, os.WriteFile(u.program, b, 0o755))
	must(t, os.Mkdir(u.dir, 0o700))
	must(t, os.Chown(u.dir, nobody, nobody))
	return u
}

// command is the command as a user runs it.
func (u *usersStore) command(uid uint32, args ...string) *exec.Cmd {
	cmd := exec.Command(u.program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"HANSARD_STORE=" + u.dir, "HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// as runs the command as a user.
func (u *usersStore) as(uid uint32, args ...string) result {
	u.t.Helper()
	return run(u.t, u.command(uid, args...))
}

func (u *usersStore) ok(uid uint32, args ...string) string {
	u.t.Helper()
	r := u.as(uid, args...)
	if r.code != 0 {
		u.t.Fatalf("user %d: hansard %s: exit code %d\n%s", uid, strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// rootServes has root's server search the store.
func (u *usersStore) rootServes(word string) {
	u.t.Helper()
	p := start(u.t, u.command(0, "serve", "--listen", "127.0.0.1:0", "--json", "--token-from", serverTokenFile(u.t)), nil)
	var where struct{ URL string }
	must(u.t, json.Unmarshal([]byte(p.line()), &where))
	search := command(where.URL, "search", word)
	search.Env = append(search.Env, "HANSARD_TOKEN="+serverToken)
	if r := run(u.t, search); r.code != 0 {
		u.t.Errorf("search through root's server: exit code %d, stderr %s", r.code, r.stderr)
	}
	p.signal(syscall.SIGTERM)
	p.finish()
}

// all checks that everything in the store belongs to its user.
func (u *usersStore) all(when string) {
	u.t.Helper()
	must(u.t, filepath.WalkDir(u.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != nobody || st.Gid != nobody {
			u.t.Errorf("%s: %s belongs to %d:%d", when, path, st.Uid, st.Gid)
		}
		return nil
	}))
}

// TestRootKeepsTheOwner: whatever root does in a user's store, the user can go on using it.
func TestRootKeepsTheOwner(t *testing.T) {
	u := newUsersStore(t)
	file := filepath.Join(filepath.Dir(u.dir), "notes.txt")
	must(t, os.WriteFile(file, []byte("some notes"), 0o600))
	hbk := filepath.Join(filepath.Dir(u.dir), "store.hbk")
	for _, first := range []uint32{0, nobody} { // whoever makes the store makes its journal
		when := fmt.Sprintf("after user %d made the store", first)
		u.ok(first, "new", "a")
		if out := u.as(0, "search", "nothing"); out.code != 1 || out.stderr != "" { // first of all: it makes cache/ as well
			t.Errorf("%s: root's search: exit code %d, stderr %s", when, out.code, out.stderr)
		}
		u.all(when + " and root searched it")
		u.ok(0, "append", "a", "one", "--key", "k1")
		u.ok(0, "append", "b", "two", "--create")
		u.ok(0, "turn", "b", "--", "true")
		u.ok(0, "ls")
		u.ok(0, "token", "add", "dashboard", "--rights", "read")
		u.ok(0, "attach", "b", file)
		u.ok(0, "fork", "b", "--as", "fork")
		u.ok(0, "append", "b", "secret")
		u.ok(0, "search", "secret")
		u.ok(0, "redact", "a", "1", "--yes")
		u.ok(0, "append", "broken", "three", "--create")
		damage(t, logOf(u.dir, "broken"))
		u.ok(0, "repair", "broken")
		for _, id := range []string{"gone", "scrubbed"} {
			u.ok(0, "append", id, "four", "--create")
			u.ok(0, "attach", id, file)
			u.ok(0, "rm", id, "--yes")
			u.ok(0, map[string][]string{"gone": {"prune"}, "scrubbed": {"prune", "--scrub"}}[id]...)
		}
		u.ok(0, "search", "two") // scrubbing removed the index
		u.ok(0, "backup", hbk)
		u.ok(0, "restore", hbk)
		must(t, os.Remove(hbk))
		u.all(when)
		check := func(when, word string) {
			t.Helper()
			if r := u.as(nobody, "search", word); r.code != 0 || r.stderr != "" {
				t.Errorf("%s: the user's search: exit code %d, stderr %s", when, r.code, r.stderr)
			}
		}
		check(when, "two")
		for _, args := range [][]string{{"append", "a", "more"}, {"append", "b", "more"}, {"new", "c"}, {"ls"}, {"show", "b"}, {"verify"}, {"token", "ls"},
			{"attach", "b", "/proc/self/cmdline"}, {"redact", "b", "1", "--yes"}, {"append", "broken", "more"}, {"rm", "fork", "--yes"}, {"prune", "--scrub"}} {
			u.ok(nobody, args...)
		}
		check(when, "more")
		must(t, os.RemoveAll(filepath.Join(u.dir, "cache")))
		u.rootServes("more")
		u.all(when + " and root served it")
		u.ok(nobody, "append", "c", "later")
		check(when+" and root served it", "later")
		must(t, os.RemoveAll(u.dir))
		must(t, os.Mkdir(u.dir, 0o700))
		must(t, os.Chown(u.dir, nobody, nobody))
	}
}

// TestLackOfRightsIsNoDamage: a file that a user has no right to is named, with its owner and
// what to do; nothing is called damaged, and no repair is suggested.
func TestLackOfRightsIsNoDamage(t *testing.T) {
	u := newUsersStore(t)
	for _, id := range []string{"mine", "roots"} {
		u.ok(nobody, "new", id)
		u.ok(nobody, "append", id, "one")
	}
	log := filepath.Join(u.dir, "sessions", "roots.jsonl")
	check := func(what string, r result, file string) {
		t.Helper()
		said := r.stdout + r.stderr
		if r.code != 1 {
			t.Errorf("%s: exit code %d, want 1\n%s", what, r.code, said)
		}
		for _, want := range []string{file, "belongs to root", "chown nobody " + file} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: it does not say %q:\n%s", what, want, said)
			}
		}
		for _, never := range []string{"damage", "repair"} {
			if strings.Contains(said, never) {
				t.Errorf("%s: it says %q:\n%s", what, never, said)
			}
		}
	}
	must(t, os.Chown(log, 0, 0))
	for _, args := range [][]string{{"show", "roots"}, {"stat", "roots"}, {"append", "roots", "two"}, {"append", "roots", "two", "--key", "k"}, {"verify", "roots"}, {"verify"}} {
		check(strings.Join(args, " "), u.as(nobody, args...), "sessions/roots.jsonl")
	}
	if list := u.ok(nobody, "ls"); !strings.Contains(list, "mine") || !strings.Contains(list, "unreadable") || strings.Contains(list, "damaged") {
		t.Errorf("ls:\n%s", list)
	}
	u.ok(nobody, "append", "mine", "two") // the other sessions go on
	must(t, os.Chown(log, nobody, nobody))
	u.ok(nobody, "append", "roots", "two")
	for _, name := range []string{"write.lock", "journal", "control"} {
		must(t, os.Chown(filepath.Join(u.dir, name), 0, 0))
		check("append with root's "+name, u.as(nobody, "append", "mine", "three"), name)
		if name == "journal" { // without it nobody can tell whether the logs are complete
			check("show with root's journal", u.as(nobody, "show", "mine"), name)
		} else {
			u.ok(nobody, "show", "mine")
		}
		must(t, os.Chown(filepath.Join(u.dir, name), nobody, nobody))
	}
	u.ok(nobody, "append", "mine", "three")
	if out := u.ok(nobody, "verify"); !strings.Contains(out, "2 sessions sound, 5 events") {
		t.Errorf("verify: %s", out)
	}
}

// TestServeReadOnlySaysWhereTokensGo: a server of a directory that it may only read can't make its
// first token there, and says which flags help. They do.
func TestServeReadOnlySaysWhereTokensGo(t *testing.T) {
	u := newUsersStore(t)
	u.ok(nobody, "append", "demo", "one", "--create")
	must(t, os.Chmod(u.dir, 0o500))
	serve := []string{"serve", "--listen", "127.0.0.1:0", "--read-only"}
	r := u.as(nobody, serve...)
	if r.code != 1 || !strings.Contains(r.stderr, "the first token can't be kept") || !strings.Contains(r.stderr, "--token-from FILE") || !strings.Contains(r.stderr, "--token-file FILE") {
		t.Errorf("exit code %d, %s", r.code, r.stderr)
	}
	tokens := filepath.Join(filepath.Dir(u.dir), "tokens")
	must(t, os.Mkdir(tokens, 0o700))
	must(t, os.Chown(tokens, nobody, nobody))
	p := start(t, u.command(nobody, append(serve, "--token-file", filepath.Join(tokens, "file"))...), nil)
	if line := p.line(); !strings.HasPrefix(line, "serving http://") {
		t.Errorf("it says %q", line)
	}
	p.signal(syscall.SIGTERM)
	p.finish()
}

// TestFailedDeviceSaysRemount: after a device failure nothing works on xfs, even once the device
// works again, until the file system is remounted; and the error says so.
func TestFailedDeviceSaysRemount(t *testing.T) {
	needs(t, "xfs_io")
	d := newDisk(t, "xfs", 400)
	store := filepath.Join(d.dir, "store")
	ok(t, store, "append", "demo", "one", "--create")
	writer := start(t, command(store, "append", "demo", "--jsonl", "-", "--each", "--json"), nil)
	writer.send(`{"data":"two"}`)
	eventually(t, "the second is stored", func() bool { return strings.Contains(ok(t, store, "show", "demo"), "two") })
	d.cut() // it shuts itself down, as after an error
	writer.send(`{"data":"three"}`)
	writer.stdin.Close()
	if code := writer.exit(); code != 1 || !strings.Contains(writer.stderr.String(), "mounted again") {
		t.Errorf("a running writer: exit code %d, stderr %s", code, writer.stderr)
	}
	for _, args := range [][]string{{"append", "demo", "four"}, {"show", "demo"}, {"ls"}, {"verify"}} {
		r := run(t, command(store, args...))
		said := r.stdout + r.stderr
		if r.code == 0 || !strings.Contains(said, "mounted again") || !strings.Contains(said, "xfs") || strings.Contains(said, "repair") {
			t.Errorf("%s: exit code %d\n%s", strings.Join(args, " "), r.code, said)
		}
	}
	d.unmount()
	d.mount()
	ok(t, store, "append", "demo", "five")
	if out := ok(t, store, "show", "demo"); !strings.Contains(out, "one") || !strings.Contains(out, "two") || !strings.Contains(out, "five") {
		t.Errorf("show:\n%s", out)
	}
	ok(t, store, "verify")
}

// TestImportUnreadable: another user's directory is named, and does not keep its neighbours from
// being imported.
func TestImportUnreadable(t *testing.T) {
	u := newUsersStore(t)
	projects := filepath.Join(filepath.Dir(u.dir), "projects")
	for _, name := range []string{"-mine/1.jsonl", "-roots/2.jsonl"} {
		path := filepath.Join(projects, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		id := strings.TrimSuffix(filepath.Base(name), ".jsonl")
		must(t, os.WriteFile(path, []byte(`{"type":"user","uuid":"u`+id+`","sessionId":"`+id+`","message":{"role":"user","content":"hello"}}`+"\n"), 0o644))
	}
	must(t, os.Chmod(filepath.Join(projects, "-roots"), 0o700))
	r := u.as(nobody, "import", projects)
	if said := r.stdout + r.stderr; r.code != 1 || !strings.Contains(said, "-roots") || !strings.Contains(said, "permission denied") {
		t.Errorf("import: exit code %d\n%s", r.code, said)
	}
	if list := u.ok(nobody, "ls", "--json"); strings.Count(list, "\n") != 1 || !strings.Contains(list, `"claude:1"`) {
		t.Errorf("ls: %s", list)
	}
}

// TestHintGivesAccessBack: the owner of a store that was made read-only, file by file, is told one
// command that makes it writable again, and the file that was in the way is named once.
func TestHintGivesAccessBack(t *testing.T) {
	u := newUsersStore(t)
	u.ok(nobody, "new", "s")
	must(t, exec.Command("chmod", "-R", "a-w", u.dir).Run())
	r := u.as(nobody, "append", "s", "refused")
	_, hint, ok := strings.Cut(r.stderr, "in the store's directory: ")
	if r.code != 1 || !ok || strings.Contains(r.stderr, "open sync.lock: open") {
		t.Fatalf("append: exit code %d\n%s", r.code, r.stderr)
	}
	give := exec.Command("sh", "-c", hint)
	give.Dir = u.dir
	must(t, give.Run())
	u.ok(nobody, "append", "s", "stored")
}
