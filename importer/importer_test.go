package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/memstore"
	"hansard/transcript"
)

// files are the files of a case, by their path.
type files map[string]string

func (f files) write(t testing.TB, dir string) {
	t.Helper()
	for name, text := range f {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// wanted is what an import of a case makes of one session.
type wanted struct {
	kinds   string // of its events, in order, a letter each: see letters
	title   string
	labels  map[string]string // among others
	calls   int
	open    []string // calls without a result
	orphans int
	usage   transcript.Tokens
	copied  int
	fork    hansard.Parent // that it is a fork of
	damage  int            // reports about its source
}

// letters stand for kinds.
var letters = map[string]string{"message": "m", "tool_call": "c", "tool_result": "r", "reasoning": "t", "summary": "s", "meta": "i", "usage": "u", "raw": "x",
	"attachment": "a", "subagent": "l", "revision": "v", "fork": "f"}

// formatCase is a hand-made directory of a tool's and what an import makes of it.
type formatCase struct {
	name     string
	files    files
	sessions map[hansard.SessionID]wanted
	// grows says that the files are appended to, so that an import may come at any
	// time; otherwise they are written anew.
	grows bool
}

// checkFormat runs everything that holds for all formats.
func checkFormat(t *testing.T, f Format, cases []formatCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.files.write(t, dir)
			store, reports := imported(t, f, dir)
			checkSessions(t, store, c.sessions, reports)
			checkBytes(t, store, c.files)
			want := contents(t, store)

			t.Run("again", func(t *testing.T) {
				for _, r := range importInto(t, store, f, dir) {
					if r.Added != 0 || r.Err != nil {
						t.Errorf("%s: %d events were added again, %v", r.Source.Path, r.Added, r.Err)
					}
				}
				same(t, want, contents(t, store))
			})
			if c.grows {
				t.Run("cuts", func(t *testing.T) { checkCuts(t, f, c.files, want) })
			}
			t.Run("concurrently", func(t *testing.T) { checkConcurrent(t, f, dir, want) })
			t.Run("dry", func(t *testing.T) { checkDry(t, f, dir, reports) })
		})
	}
}

func imported(t testing.TB, f Format, dir string) (hansard.Store, []Report) {
	t.Helper()
	store := memstore.New()
	t.Cleanup(func() { _ = store.Close() })
	return store, importInto(t, store, f, dir)
}

func importInto(t testing.TB, store hansard.Store, f Format, dir string) []Report {
	t.Helper()
	sources, err := Named([]Format{f}, []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	var reports []Report
	e := &Engine{Store: store, Workers: 2}
	if err := e.Run(context.Background(), sources, func(r Report) { reports = append(reports, r) }); err != nil {
		t.Fatal(err)
	}
	return reports
}

func checkSessions(t *testing.T, store hansard.Store, sessions map[hansard.SessionID]wanted, reports []Report) {
	t.Helper()
	var ids []hansard.SessionID
	for info, err := range store.List(context.Background(), hansard.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID)
	}
	slices.Sort(ids)
	if want := slices.Sorted(maps.Keys(sessions)); !slices.Equal(ids, want) {
		t.Errorf("the sessions are %q, want %q", ids, want)
	}
	for id, want := range sessions {
		info, err := store.Stat(context.Background(), id)
		if err != nil {
			t.Error(err)
			continue
		}
		kinds := ""
		for _, e := range events(t, store, id) {
			letter, ok := letters[e.Kind]
			if !ok {
				letter = "?"
			}
			kinds += letter
		}
		if kinds != want.kinds || info.Title != want.title {
			t.Errorf("%s: kinds %q, title %q; want %q, %q", id, kinds, info.Title, want.kinds, want.title)
		}
		if got := parentOf(&info); got != want.fork {
			t.Errorf("%s: it is a fork of %v, want %v", id, got, want.fork)
		}
		for k, v := range want.labels {
			if info.Labels[k] != v {
				t.Errorf("%s: label %s is %q, want %q", id, k, info.Labels[k], v)
			}
		}
		checkReport(t, id, want, reports)
	}
}

func parentOf(info *hansard.Info) hansard.Parent {
	if info.Parent == nil {
		return hansard.Parent{}
	}
	return *info.Parent
}

// checkReport compares the reports about a session's sources.
func checkReport(t *testing.T, id hansard.SessionID, want wanted, reports []Report) {
	t.Helper()
	var got wanted
	found := false
	for _, r := range reports {
		if r.Session != id {
			continue
		}
		found = true
		if r.Err != nil {
			t.Errorf("%s: %v", r.Source.Path, r.Err)
		}
		got.calls, got.open, got.orphans = got.calls+r.Calls, append(got.open, r.Open...), got.orphans+r.Orphans
		got.copied, got.damage = got.copied+r.Copied, got.damage+len(r.Damage)
		addTokens(&got.usage, &r.Usage)
		for _, d := range r.Damage {
			t.Logf("%s: offset %d, line %d: %s", d.File, d.Offset, d.Line, d.Message)
		}
	}
	if !found {
		return // the session of a sub-agent that is kept in its parent's file
	}
	want.kinds, want.title, want.labels, want.fork = "", "", nil, hansard.Parent{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: the report has %+v, want %+v", id, got, want)
	}
}

func events(t testing.TB, store hansard.Store, id hansard.SessionID) []hansard.Event {
	t.Helper()
	var out []hansard.Event
	for e, err := range store.Read(context.Background(), id, hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// checkBytes: what is stored of a record is the record. Every event's data, or its
// attachment, is somewhere in the files as it is.
func checkBytes(t *testing.T, store hansard.Store, files files) {
	t.Helper()
	all := strings.Join(slices.Collect(maps.Values(files)), "\n")
	for id := range contents(t, store) {
		for _, e := range events(t, store, hansard.SessionID(id)) {
			data := e.Data
			for _, a := range e.Attachments {
				r, err := store.OpenAttachment(context.Background(), hansard.SessionID(id), a.Digest)
				if err != nil {
					t.Fatal(err)
				}
				if data, err = io.ReadAll(r); err != nil {
					t.Fatal(err)
				}
			}
			if e.Kind != KindSubAgent && !e.StoresOwn() && !kept(all, data) {
				t.Errorf("%s, seq %d: %.200s is in no file", id, e.Seq, data)
			}
		}
	}
}

// kept reports whether data is in the files as it is: as a whole, or, where one object is
// divided, each of its members; a file that is not JSON is stored as a string.
func kept(all string, data []byte) bool {
	if strings.Contains(all, string(data)) {
		return true
	}
	if s := textOf(data); s != "" {
		return strings.Contains(all, s)
	}
	members := object(data)
	return len(members) > 0 && !slices.ContainsFunc(members, func(m member) bool { return !strings.Contains(all, string(m.value)) })
}

// contents is all that an import decides, by session.
func contents(t testing.TB, store hansard.Store) map[string]string {
	t.Helper()
	out := map[string]string{}
	for info, err := range store.List(context.Background(), hansard.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "%q %v %s %v\n", info.Title, info.Labels, info.State, parentOf(&info))
		for _, e := range events(t, store, info.ID) {
			fmt.Fprintf(&b, "%d %s %s %s %s %v %v %s\n", e.Seq, e.ID, e.Kind, e.Role, e.Author, e.At, e.Attachments, e.Data)
			if e.Patch != nil {
				fmt.Fprintf(&b, "  %s\n", marshal(e.Patch))
			}
		}
		out[string(info.ID)] = b.String()
	}
	return out
}

func same(t *testing.T, want, got map[string]string) {
	t.Helper()
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if got[id] != want[id] {
			t.Errorf("%s is\n%s\nwant\n%s", id, got[id], want[id])
		}
	}
	for id := range got {
		if _, ok := want[id]; !ok {
			t.Errorf("there is a session %s", id)
		}
	}
}

// checkCuts imports files three times while they grow, with the cuts at every place of
// the line they are in, and wants the session of one import.
func checkCuts(t *testing.T, f Format, whole files, want map[string]string) {
	longest := 0
	for _, text := range whole {
		longest = max(longest, len(text))
	}
	step := max(1, longest/40)
	for first := 0; first < longest; first += step {
		dir := t.TempDir()
		store := memstore.New()
		for _, at := range []int{first, first + (longest-first)/2, longest} {
			cutFiles := files{}
			for name, text := range whole {
				cutFiles[name] = text
				if growing(name) {
					cutFiles[name] = text[:min(at, len(text))]
				}
			}
			cutFiles.write(t, dir)
			importInto(t, store, f, dir)
		}
		got := contents(t, store)
		// What links sessions comes last in each import: its place differs.
		if len(got) != len(want) || sorted(got) != sorted(want) {
			t.Fatalf("cut at %d:", first)
			same(t, want, got)
		}
		_ = store.Close()
	}
}

func growing(name string) bool { return strings.HasSuffix(name, ".jsonl") }

// sorted is contents without regard to the order of links.
func sorted(c map[string]string) string {
	var out []string
	for id, text := range c {
		for line := range strings.Lines(text) {
			_, rest, _ := strings.Cut(line, " ")
			out = append(out, id+" "+rest)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

// checkConcurrent lets four importers at one store.
func checkConcurrent(t *testing.T, f Format, dir string, want map[string]string) {
	store := memstore.New()
	defer store.Close()
	errs := make(chan error)
	for range 4 {
		go func() {
			sources, err := Named([]Format{f}, []string{dir})
			if err == nil {
				err = (&Engine{Store: store}).Run(context.Background(), sources, func(r Report) {
					if r.Err != nil {
						errs <- r.Err
					}
				})
			}
			if err == nil {
				err = io.EOF
			}
			errs <- err
		}()
	}
	for done := 0; done < 4; {
		if err := <-errs; errors.Is(err, io.EOF) {
			done++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if sorted(contents(t, store)) != sorted(want) {
		same(t, want, contents(t, store))
	}
}

// checkDry: reading without a store tells the same.
func checkDry(t *testing.T, f Format, dir string, want []Report) {
	sources, err := Named([]Format{f}, []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	say := func(r Report) string {
		return fmt.Sprint(r.Session, r.Records, r.Calls, r.Results, r.Open, r.Usage, len(r.Damage), r.Copied)
	}
	err = (&Engine{}).Run(context.Background(), sources, func(r Report) { got[r.Source.Path] = say(r) })
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range want {
		if got[r.Source.Path] != say(r) {
			t.Errorf("%s: a dry run says %s, the import said %s", r.Source.Path, got[r.Source.Path], say(r))
		}
	}
}
