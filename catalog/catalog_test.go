package catalog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/catalog"
	"hansard/filestore"
)

func open(t testing.TB, dir string, o filestore.Options) *filestore.Store {
	t.Helper()
	s, err := filestore.Open(dir, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func with(o filestore.Options) filestore.Options {
	o.Catalog = catalog.Open
	return o
}

// list is a list as text, by page.
func list(t testing.TB, s *filestore.Store, q hansard.Query) (lines []string) {
	t.Helper()
	for info, err := range s.List(t.Context(), q) {
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		info.Cursor = ""
		line, err := json.Marshal(info)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	return lines
}

func files(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "cache", "catalog.*.db"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// world is a store whose sessions all kinds of things happen to.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	dir     string
	w       *filestore.Store
	turns   map[hansard.SessionID]hansard.Grant
	damaged map[hansard.SessionID][]byte
}

func (x *world) id() hansard.SessionID { return hansard.SessionID(fmt.Sprintf("s-%d", x.rng.IntN(30))) }

func (x *world) log(id hansard.SessionID) string {
	return filepath.Join(x.dir, "sessions", string(id)+".jsonl")
}

// step does one thing. Refusals are part of it.
func (x *world) step() (did string) {
	ctx, id := x.t.Context(), x.id()
	var err error
	switch n := x.rng.IntN(26); {
	case n < 6:
		did = "create"
		_, err = x.w.Create(ctx, id, hansard.Meta{Title: fmt.Sprintf("Title %d", x.rng.IntN(9)), Labels: map[string]string{"l": fmt.Sprint(x.rng.IntN(3))}})
	case n < 11:
		did = "append"
		_, err = x.w.Append(ctx, id, hansard.Batch{Events: []hansard.Event{{Data: []byte(`"x"`)}}})
	case n < 13:
		did = "patch"
		title, label := fmt.Sprintf("ÄNDERUNG %d", x.rng.IntN(9)), fmt.Sprint(x.rng.IntN(3))
		_, err = x.w.Append(ctx, id, hansard.Batch{Patch: &hansard.Patch{Title: &title, Labels: map[string]*string{"l": &label, "archived": []*string{nil, &label}[x.rng.IntN(2)]},
			State: json.RawMessage(strconv.Quote(strings.Repeat("s", x.rng.IntN(2)*5000)))}})
	case n < 14:
		did = "delete"
		err = x.w.Delete(ctx, id, x.turns[id])
	case n < 16:
		did = "acquire"
		var turn hansard.Turn
		if turn, err = x.w.Acquire(ctx, id, hansard.Claim{TTL: time.Hour}); err == nil {
			x.turns[id] = turn.Grant
		}
	case n < 17:
		did = "release"
		if x.turns[id] != "" {
			err = x.w.Release(ctx, id, x.turns[id])
			delete(x.turns, id)
		}
	case n < 18:
		did = "prune"
		_, err = x.w.Prune(ctx, x.rng.IntN(3) == 0)
	case n < 19:
		did = "copied in"
		b, readErr := os.ReadFile(x.log(id))
		if readErr == nil {
			copied := hansard.SessionID(fmt.Sprintf("c-%d", x.rng.IntN(9)))
			// A log of another name is damaged, and listed as such.
			err = os.WriteFile(x.log(copied), b, 0o600)
		}
	case n < 20:
		did = "removed by hand"
		err = os.Remove(x.log(hansard.SessionID(fmt.Sprintf("c-%d", x.rng.IntN(9)))))
	case n < 21:
		did = "a directory in its place"
		err = os.Mkdir(x.log(hansard.SessionID(fmt.Sprintf("d-%d", x.rng.IntN(3)))), 0o700)
	case n < 22:
		did = "replaced by a damaged one"
		if b, readErr := os.ReadFile(x.log(id)); readErr == nil && len(b) > 200 {
			b[150] ^= 1
			tmp := filepath.Join(x.dir, "damaged")
			err = errors.Join(os.WriteFile(tmp, b, 0o600), os.Rename(tmp, x.log(id)))
			x.damaged[id] = b
		}
	case n < 23:
		did = "repair"
		_, err = x.w.Repair(ctx, id)
	case n < 25:
		did = "what was damaged is put right, in place"
		for id := range x.damaged {
			if b, readErr := os.ReadFile(x.log(id)); readErr == nil && bytes.Equal(b, x.damaged[id]) {
				b[150] ^= 1
				err = os.WriteFile(x.log(id), b, 0o600)
			}
			delete(x.damaged, id)
		}
	default:
		did = "reopen"
		x.w.Close()
		x.w = open(x.t, x.dir, with(filestore.Options{}))
		clear(x.turns)
	}
	return fmt.Sprintf("%s %s: %v", did, id, err)
}

// query is some query.
func (x *world) query() (q hansard.Query) {
	q.Order = hansard.Order(x.rng.IntN(2))
	q.Limit = x.rng.IntN(4) * 3
	q.Archived = hansard.Archived(max(0, x.rng.IntN(6)-3))
	q.Held, q.Damaged = x.rng.IntN(8) == 0, x.rng.IntN(8) == 0
	if x.rng.IntN(3) == 0 {
		q.Labels = map[string]string{"l": fmt.Sprint(x.rng.IntN(3))}
	}
	if x.rng.IntN(3) == 0 {
		q.Text = []string{"title", "ÄNDERUNG 1", "änd", "S-1", "none", "%"}[x.rng.IntN(6)]
	}
	if x.rng.IntN(4) == 0 {
		q.Prefix = []string{"s-1", "c", "s-"}[x.rng.IntN(3)]
	}
	if x.rng.IntN(6) == 0 {
		q.IDs = []hansard.SessionID{"s-1", "s-2", "c-1", "none"}
	}
	past := func() time.Time { return time.Now().Add(-time.Duration(x.rng.IntN(1000)) * time.Millisecond) }
	switch x.rng.IntN(10) {
	case 0:
		q.Since = past()
	case 1:
		q.Before = past()
	case 2:
		q.CreatedSince = past()
	case 3:
		q.CreatedBefore = past()
	}
	return q
}

// TestSameLists: with the catalog and without it a list is the same, whatever happened to
// the sessions and their files, also in pages, and so is a count.
func TestSameLists(t *testing.T) {
	seeds := 6 * torture()
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), dir: t.TempDir(), turns: map[hansard.SessionID]hansard.Grant{}, damaged: map[hansard.SessionID][]byte{}}
			x.w = open(t, x.dir, with(filestore.Options{}))
			reader, plain := open(t, x.dir, with(filestore.Options{ReadOnly: true})), open(t, x.dir, filestore.Options{ReadOnly: true})
			var did []string
			for range 120 {
				did = append(did, x.step())
				if x.rng.IntN(3) > 0 {
					continue
				}
				for _, s := range []*filestore.Store{x.w, reader} {
					q := x.query()
					want, got := list(t, plain, q), list(t, s, q)
					if !slices.Equal(got, want) {
						t.Fatalf("seed %d, %+v\nwith the catalog:\n%s\nwithout:\n%s\nafter:\n%s", seed, q, strings.Join(got, "\n"), strings.Join(want, "\n"), strings.Join(did[max(0, len(did)-10):], "\n"))
					}
					n, err := s.Count(t.Context(), q)
					if q.Limit = 0; err != nil || n != len(list(t, plain, q)) {
						t.Fatalf("seed %d, %+v counts %d, %v", seed, q, n, err)
					}
				}
			}
			list(t, reader, hansard.Query{})
			if len(files(t, x.dir)) != 1 {
				t.Errorf("the catalogs are %q", files(t, x.dir))
			}
		})
	}
}

func torture() int {
	if n, err := strconv.Atoi(os.Getenv("HANSARD_TORTURE")); err == nil && n > 1 {
		return n
	}
	return 1
}

// disturbances are what may happen to a catalog.
var disturbances = map[string]func(file string) error{
	"nothing":                  func(string) error { return nil },
	"deleted":                  os.Remove,
	"deleted with its journal": func(file string) error { return errors.Join(os.Remove(file), os.Remove(file+"-journal")) },
	"emptied":                  func(file string) error { return os.Truncate(file, 0) },
	"truncated":                func(file string) error { return os.Truncate(file, 9000) },
	"garbage":                  func(file string) error { return os.WriteFile(file, bytes.Repeat([]byte("garbage "), 5000), 0o600) },
	"garbage behind the first page": func(file string) error {
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(bytes.Repeat([]byte("garbage "), 5000), 4096)
		return errors.Join(err, f.Close())
	},
	"a directory": func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) },
	"another catalog": func(file string) error {
		// Before the others by name, so that it is used; and whole, under a name that was never
		// used before: SQLite can't tell that an open file was written over with other content if
		// both changed equally often (TestAnotherInItsPlace has the case in which they did not).
		b, err := os.ReadFile(file)
		whole := file + ".tmp"
		copied := filepath.Join(filepath.Dir(file), fmt.Sprintf("catalog.%016x.db", 1<<20-anotherCatalog.Add(1)))
		return errors.Join(err, os.WriteFile(whole, b, 0o600), os.Rename(whole, copied))
	},
}

// anotherCatalog counts the catalogs that were copied.
var anotherCatalog atomic.Int64

// TestDisturbed: whatever becomes of the file, all sessions are listed, by processes that
// had it open and by new ones, and afterwards there is a catalog that is used.
func TestDisturbed(t *testing.T) {
	for name, disturb := range disturbances {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := open(t, dir, with(filestore.Options{}))
			for i := range 40 {
				if _, err := w.Create(t.Context(), hansard.SessionID(fmt.Sprint("s", i)), hansard.Meta{Title: "t", Labels: map[string]string{"n": fmt.Sprint(i)}}); err != nil {
					t.Fatal(err)
				}
			}
			reader := open(t, dir, with(filestore.Options{ReadOnly: true}))
			if len(list(t, reader, hansard.Query{})) != 40 || len(list(t, w, hansard.Query{})) != 40 {
				t.Fatal("not all are listed")
			}
			if err := disturb(files(t, dir)[0]); err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				if _, err := w.Create(t.Context(), hansard.SessionID(fmt.Sprint("more", i)), hansard.Meta{}); err != nil {
					t.Fatal(err)
				}
				for who, s := range map[string]*filestore.Store{"writer": w, "reader": reader, "new": open(t, dir, with(filestore.Options{ReadOnly: true}))} {
					if got := len(list(t, s, hansard.Query{})); got != 41+i {
						t.Errorf("%s: %d of %d are listed", who, got, 41+i)
					}
					if got := len(list(t, s, hansard.Query{Labels: map[string]string{"n": "7"}})); got != 1 {
						t.Errorf("%s: %d with the label", who, got)
					}
				}
			}
			calls := 0
			last := open(t, dir, filestore.Options{ReadOnly: true, Progress: func(int, int) { calls++ }, Catalog: catalog.Open})
			if got := len(list(t, last, hansard.Query{})); got != 45 || calls != 0 {
				t.Errorf("in the end %d are listed, and the logs were read %d times", got, calls)
			}
		})
	}
}

// TestLostLog: a session whose log was removed from outside is listed by the process that knows
// that it had lines, at each list, also if another process, which does not, lists in between.
func TestLostLog(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, with(filestore.Options{}))
	for i := range 5 {
		if _, err := w.Create(t.Context(), hansard.SessionID(fmt.Sprint("s", i)), hansard.Meta{}); err != nil {
			t.Fatal(err)
		}
	}
	list(t, w, hansard.Query{})
	if err := os.Remove(filepath.Join(dir, "sessions", "s2.jsonl")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		list(t, open(t, dir, with(filestore.Options{ReadOnly: true})), hansard.Query{})
		damaged := 0
		for info, err := range w.List(t.Context(), hansard.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			if info.Damage != nil {
				damaged++
			}
		}
		if n, err := w.Count(t.Context(), hansard.Query{}); err != nil || n != 5 || damaged != 1 {
			t.Errorf("%d are counted, %v, and %d damaged", n, err, damaged)
		}
	}
}

// TestWithout: where there can be no catalog, lists are made without.
func TestWithout(t *testing.T) {
	for name, prevent := range map[string]func(t *testing.T, dir string) filestore.Options{
		"cache is a file": func(t *testing.T, dir string) filestore.Options {
			if err := errors.Join(os.RemoveAll(filepath.Join(dir, "cache")), os.WriteFile(filepath.Join(dir, "cache"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			return with(filestore.Options{ReadOnly: true})
		},
		"it can't be opened": func(*testing.T, string) filestore.Options {
			return filestore.Options{ReadOnly: true, Catalog: func(string, string) (filestore.Catalog, error) { return nil, errors.New("no") }}
		},
		"it is locked": func(t *testing.T, dir string) filestore.Options {
			s := open(t, dir, with(filestore.Options{ReadOnly: true}))
			list(t, s, hansard.Query{})
			lock(t, files(t, dir)[0])
			return with(filestore.Options{ReadOnly: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := open(t, dir, filestore.Options{})
			for i := range 5 {
				if _, err := w.Create(t.Context(), hansard.SessionID(fmt.Sprint("s", i)), hansard.Meta{}); err != nil {
					t.Fatal(err)
				}
			}
			s := open(t, dir, prevent(t, dir))
			for range 2 {
				if got := len(list(t, s, hansard.Query{})); got != 5 {
					t.Errorf("%d of 5 are listed", got)
				}
				if n, err := s.Count(t.Context(), hansard.Query{}); err != nil || n != 5 {
					t.Errorf("%d are counted, %v", n, err)
				}
			}
		})
	}
}

// TestErasedFromCatalog: nothing of a deleted session is left in cache/ after a prune, and
// the catalog is still used.
func TestErasedFromCatalog(t *testing.T) {
	for _, catalogued := range []bool{true, false} {
		t.Run(fmt.Sprint(catalogued), func(t *testing.T) {
			dir := t.TempDir()
			w := open(t, dir, with(filestore.Options{}))
			for _, id := range []hansard.SessionID{"kept", "gone"} {
				if _, err := w.Create(t.Context(), id, hansard.Meta{Title: "the title of " + string(id), Labels: map[string]string{"label": "secret-" + string(id)}}); err != nil {
					t.Fatal(err)
				}
			}
			list(t, w, hansard.Query{})
			if !leaves(t, dir, "the title of gone") || !leaves(t, dir, "secret-gone") {
				t.Fatal("the catalog has nothing of it")
			}
			eraser := w
			if !catalogued {
				eraser = open(t, dir, filestore.Options{})
			}
			if err := eraser.Delete(t.Context(), "gone", ""); err != nil {
				t.Fatal(err)
			}
			if _, err := eraser.Prune(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if leaves(t, dir, "the title of gone") || leaves(t, dir, "secret-gone") {
				t.Error("the catalog still has something of it")
			}
			if catalogued && !leaves(t, dir, "the title of kept") {
				t.Error("the catalog has lost the others")
			}
			if got := list(t, w, hansard.Query{}); len(got) != 1 {
				t.Errorf("%d are listed", len(got))
			}
		})
	}
}

// leaves tells whether something is in a file of cache/.
func leaves(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "cache"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		found = found || bytes.Contains(b, []byte(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestRegistrations: eight processes register twenty sessions each, at once, and all of
// them are listed, also if something happens to the catalog meanwhile. (Failure F4.)
func TestRegistrations(t *testing.T) {
	const processes, each = 8, 20
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(disturbances))
	for name := range disturbances {
		names = append(names, name)
	}
	slices.Sort(names)
	dir := t.TempDir()
	s := open(t, dir, with(filestore.Options{ReadOnly: false}))
	rounds := 3
	if torture() > 1 {
		rounds = 5 * torture()
	}
	for round := range rounds {
		var children []*exec.Cmd
		for p := range processes {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), "HANSARD_CATALOG_CHILD="+dir, fmt.Sprintf("HANSARD_CATALOG_NAME=r%d-p%d", round, p), fmt.Sprint("HANSARD_CATALOG_EACH=", each))
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			children = append(children, cmd)
		}
		done := make(chan error, processes)
		for _, cmd := range children {
			go func() { done <- cmd.Wait() }()
		}
		for left := processes; left > 0; {
			select {
			case err := <-done:
				if left--; err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			default:
				for _, file := range files(t, dir) {
					_ = disturbances[names[(round+left)%len(names)]](file)
				}
				list(t, s, hansard.Query{Limit: 5})
			}
		}
		fresh := open(t, dir, with(filestore.Options{ReadOnly: true}))
		for who, s := range map[string]*filestore.Store{"the one that was there": s, "a new one": fresh} {
			if got := len(list(t, s, hansard.Query{Prefix: fmt.Sprintf("r%d-", round)})); got != processes*each {
				t.Errorf("round %d: %s lists %d of %d", round, who, got, processes*each)
			}
		}
		fresh.Close()
	}
}

// TestCopies: a copy of a catalog is of no use: nobody knows whether it is whole.
func TestCopies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "catalog.db")
	for i, self := range []string{"this one", "this one", "another"} {
		c, err := catalog.Open(file, self)
		if (i < 2) != (err == nil) || i == 2 && !errors.Is(err, filestore.ErrBadCatalog) {
			t.Errorf("opened as %s: %v", self, err)
		}
		if err == nil {
			c.Close()
		}
	}
}

// TestAnotherInItsPlace: a copy of another catalog that is written over an open one is
// noticed. It would not be if the name was compared only when the file is opened.
func TestAnotherInItsPlace(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	open := func(name string) filestore.Catalog {
		c, err := catalog.Open(filepath.Join(dir, name), name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ours, other := open("ours"), open("other")
	// The copy looks newer, so that SQLite reads it.
	for rev := range int64(2) {
		if _, err := other.Update(ctx, rev+1, nil, nil, "another"); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ours"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if state, err := ours.State(ctx); !errors.Is(err, filestore.ErrBadCatalog) {
		t.Errorf("its state is %+v, %v", state, err)
	}
	if page, err := ours.Page(ctx, 3, hansard.Query{}, time.Now()); !errors.Is(err, filestore.ErrBadCatalog) {
		t.Errorf("a page of it is %+v, %v", page, err)
	}
	if _, err := ours.Update(ctx, 3, nil, nil, "ours"); !errors.Is(err, filestore.ErrCatalogMoved) {
		t.Errorf("it is updated: %v", err)
	}
}

// TestLibraryStaysLight: nobody gets SQLite who does not ask for it.
func TestLibraryStaysLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "hansard", "hansard/engine", "hansard/filestore", "hansard/memstore", "hansard/pgstore", "hansard/client", "hansard/httpd").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		if strings.HasPrefix(pkg, "modernc.org/") || pkg == "hansard/catalog" || pkg == "hansard/search" {
			t.Errorf("the library depends on %s", pkg)
		}
	}
	if !strings.Contains(string(out), "hansard/filestore") {
		t.Error("nothing was looked at")
	}
}
