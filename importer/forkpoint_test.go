package importer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/memstore"
)

// forkFiles are a session, a fork of it, and a fork of that.
var forkFiles = files{
	"-w/4.jsonl": lines("4", clAITitle, clU1, clThink, clCall, clResult, clAnswer),
	"-w/5.jsonl": lines("5", clU1, clThink, clCall, clResult, clFailed, clError, clImage),
	"-w/6.jsonl": lines("6", clCustom, clU1, clThink, clCall, clResult, clFailed, clError, strings.Replace(clU1, `"u1"`, `"z1"`, 1)),
}

// TestForkCuts: wherever the files of a session and its forks ended when they were first
// imported, each session has in the end every record of its file, once, in order, as it is
// in that file or, where it was forked, in its parent's.
func TestForkCuts(t *testing.T) {
	longest := 0
	for _, text := range forkFiles {
		longest = max(longest, len(text))
	}
	names := slices.Sorted(maps.Keys(forkFiles))
	// Each file is cut by itself, and all of them together.
	for which := range len(names) + 1 {
		for first := 0; first < longest; first += longest / 25 {
			dir, store := t.TempDir(), memstore.New()
			for _, at := range []int{first, first + (longest-first)/2, longest} {
				now := maps.Clone(forkFiles)
				for i, name := range names {
					if text := now[name]; i == which || which == len(names) {
						now[name] = text[:min(at, len(text))]
					}
				}
				now.write(t, dir)
				for _, r := range importInto(t, store, claude{}, dir) {
					if r.Err != nil {
						t.Fatalf("file %d cut at %d: %v", which, first, r.Err)
					}
				}
			}
			for _, r := range importInto(t, store, claude{}, dir) {
				if r.Added != 0 {
					t.Errorf("file %d cut at %d: %d events of %s were added at the end", which, first, r.Added, r.Session)
				}
			}
			for _, name := range names {
				checkStory(t, fmt.Sprintf("file %d cut at %d", which, first), store, name)
			}
			_ = store.Close()
		}
	}
}

// checkStory compares a session of forkFiles with its file.
func checkStory(t *testing.T, when string, store hansard.Store, file string) {
	t.Helper()
	id := hansard.SessionID("claude:" + file[len("-w/"):len(file)-len(".jsonl")])
	all := strings.Join(slices.Collect(maps.Values(forkFiles)), "")
	var want, got []string
	for line := range strings.Lines(forkFiles[file]) {
		if uuid := textOf(find(object([]byte(line)), "uuid")); uuid != "" {
			want = append(want, uuid)
		}
	}
	for _, e := range events(t, store, id) {
		if !e.StoresOwn() && !strings.Contains(all, string(e.Data)+"\n") {
			t.Errorf("%s: %s, seq %d: %s is in no file", when, id, e.Seq, e.Data)
		}
		if uuid := textOf(find(object(e.Data), "uuid")); uuid != "" {
			got = append(got, uuid)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %s has the records %q, its file has %q", when, id, got, want)
	}
}

// TestForkBeforeParent: a fork that is imported alone has its whole history, and keeps it
// when the parent comes.
func TestForkBeforeParent(t *testing.T) {
	dir, store := t.TempDir(), memstore.New()
	defer store.Close()
	files{"-w/5.jsonl": forkFiles["-w/5.jsonl"]}.write(t, dir)
	importInto(t, store, claude{}, dir)
	before := contents(t, store)["claude:5"]
	forkFiles.write(t, dir)
	for range 2 {
		for _, r := range importInto(t, store, claude{}, dir) {
			if r.Err != nil {
				t.Error(r.Err)
			}
		}
	}
	if got := contents(t, store)["claude:5"]; got != before {
		t.Errorf("it is\n%s\nit was\n%s", got, before)
	}
	for file := range forkFiles {
		checkStory(t, "the fork first", store, file)
	}
}

// unlike is what keeps a fork from being one of the store's.
type unlike struct {
	name string
	// files replace those of forkFiles.
	files files
	// do changes the store after the parent was imported.
	do func(t *testing.T, s hansard.Store)
	// start replaces them in that import.
	start files
	// kinds and labels are what the session claude:5 has then.
	kinds  string
	labels map[string]string
	remark string // contains it
}

func TestForkUnlike(t *testing.T) {
	ctx := context.Background()
	labelled := map[string]string{"parent": "claude:4", "forked-at": "5", "forked-record": ""}
	cases := []unlike{
		{name: "the parent was deleted", kinds: "mtcrcrr", labels: map[string]string{"forked-at": "", "forked-record": ""}, remark: "deleted",
			do: func(t *testing.T, s hansard.Store) {
				if err := s.Delete(ctx, "claude:4", ""); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "a record of the parent was redacted", kinds: "crr", labels: labelled, remark: "redacted",
			do: func(t *testing.T, s hansard.Store) {
				if _, err := s.Redact(ctx, "claude:4", hansard.Redaction{Seqs: []hansard.Seq{3}, Reason: "r"}); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "a record behind the fork was redacted", kinds: "imtcrfcrr", labels: map[string]string{"forked-at": ""},
			do: func(t *testing.T, s hansard.Store) {
				if _, err := s.Redact(ctx, "claude:4", hansard.Redaction{Seqs: []hansard.Seq{6}, Reason: "r"}); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "somebody wrote into the parent", kinds: "crr", labels: map[string]string{"parent": "claude:4", "forked-at": "6"}, remark: "other events",
			do: func(t *testing.T, s hansard.Store) {
				// Before what the fork repeats last is imported.
				if _, err := s.Append(ctx, "claude:4", hansard.Batch{Events: []hansard.Event{{Data: []byte(`"a note"`)}}}); err != nil {
					t.Fatal(err)
				}
			}, start: files{"-w/4.jsonl": lines("4", clAITitle, clU1, clThink)}},
		{name: "the parent's file was rewound", kinds: "crr", remark: "does not repeat all", labels: map[string]string{"parent": "claude:4", "forked-at": "6"},
			files: files{"-w/4.jsonl": lines("4", clAITitle, clU1, clThink, strings.Replace(clAnswer, `"a3"`, `"x"`, 1), clCall, clResult, clAnswer)}},
		{name: "a long record in between", kinds: "xcrr", labels: labelled, remark: "does not repeat all",
			files: files{"-w/5.jsonl": lines("5", clU1, clThink, strings.Replace(clAnswer, "Done.", strings.Repeat("b", heldBytes), 1), clCall, clResult, clFailed, clError, clImage)}},
		{name: "a copy says something else", kinds: "imtfcrcrr", labels: map[string]string{"forked-record": "a1"},
			files: files{"-w/5.jsonl": lines("5", clU1, clThink, strings.Replace(clCall, "go test", "go vet", 1), clResult, clFailed, clError, clImage)}},
		{name: "the parent lacks a part", kinds: "imtfcrcrr", labels: map[string]string{"forked-record": "a1"},
			files: files{"-w/4.jsonl": lines("4", clAITitle, clU1, clThink)}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			all := maps.Clone(forkFiles)
			delete(all, "-w/6.jsonl")
			maps.Copy(all, c.files)
			dir, store := t.TempDir(), memstore.New()
			defer store.Close()
			parent := maps.Clone(all)
			delete(parent, "-w/5.jsonl")
			maps.Copy(parent, c.start)
			parent.write(t, dir)
			importInto(t, store, claude{}, dir)
			if c.do != nil {
				c.do(t, store)
			}
			all.write(t, dir)
			checkUnlike(t, &c, store, importInto(t, store, claude{}, dir))
			for _, r := range importInto(t, store, claude{}, dir) {
				if r.Added != 0 || r.Remark != "" {
					t.Errorf("imported again: %d events were added, %q", r.Added, r.Remark)
				}
			}
		})
	}
}

func checkUnlike(t *testing.T, c *unlike, store hansard.Store, reports []Report) {
	t.Helper()
	for _, r := range reports {
		if r.Session == "claude:5" && (r.Err != nil || (r.Remark == "") != (c.remark == "") || !strings.Contains(r.Remark, c.remark)) {
			t.Errorf("%v, %q", r.Err, r.Remark)
		}
	}
	kinds := ""
	for _, e := range events(t, store, "claude:5") {
		kinds += letters[e.Kind]
	}
	info, err := store.Stat(context.Background(), "claude:5")
	if err != nil || kinds != c.kinds {
		t.Errorf("kinds %s, want %s; %v", kinds, c.kinds, err)
	}
	for k, v := range c.labels {
		if info.Labels[k] != v {
			t.Errorf("label %s is %q, want %q", k, info.Labels[k], v)
		}
	}
}

// together is a store as it was before events could be stored apart.
type together struct{ *memstore.Store }

func (s together) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	b.Apart = false
	return s.Store.Append(ctx, id, b)
}

// TestForkInsideBatch: where an older import has stored records together, the fork's own
// records are stored, and labels say where they go on from.
func TestForkInsideBatch(t *testing.T) {
	dir, store := t.TempDir(), together{memstore.New()}
	defer store.Close()
	all := maps.Clone(forkFiles)
	delete(all, "-w/6.jsonl")
	all.write(t, dir)
	c := &unlike{kinds: "crr", labels: map[string]string{"parent": "claude:4", "forked-at": "5"}, remark: "inside a batch"}
	checkUnlike(t, c, store, importInto(t, store, claude{}, dir))
}

// slower is a store where somebody else is always faster at making a fork.
type slower struct{ *memstore.Store }

func (s slower) Fork(ctx context.Context, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
	if _, err := s.Store.Fork(ctx, id, f); err != nil {
		return hansard.Info{}, err
	}
	return s.Store.Fork(ctx, id, f)
}

func (s slower) Create(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
	if _, err := s.Store.Create(ctx, id, m); err != nil {
		return hansard.Info{}, err
	}
	return s.Store.Create(ctx, id, m)
}

// unsure is a store that does not know at first whether it made a fork.
type unsure struct {
	*memstore.Store
	asked map[hansard.SessionID]int
}

func (s unsure) Fork(ctx context.Context, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
	if s.asked[f.As]++; s.asked[f.As] < 3 {
		return hansard.Info{}, hansard.ErrUnknown
	}
	return s.Store.Fork(ctx, id, f)
}

func (s unsure) Create(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
	if s.asked[id]++; s.asked[id] < 3 {
		return hansard.Info{}, hansard.ErrUnknown
	}
	return s.Store.Create(ctx, id, m)
}

// TestForkRace: a fork that another importer made, or that was perhaps made, is gone on with,
// also one that has only its own records.
func TestForkRace(t *testing.T) {
	branch := maps.Clone(forkFiles)
	branch["-w/4.jsonl"] = lines("4", clAITitle, clU1, strings.Replace(clAnswer, `"a3"`, `"x"`, 1), clThink, clCall, clResult, clAnswer)
	for _, all := range []files{forkFiles, branch} {
		testForkRace(t, all)
	}
}

func testForkRace(t *testing.T, all files) {
	t.Helper()
	dir := t.TempDir()
	all.write(t, dir)
	plain, _ := imported(t, claude{}, dir)
	for name, store := range map[string]hansard.Store{"made by another": slower{memstore.New()}, "unknown": unsure{memstore.New(), map[hansard.SessionID]int{}}} {
		for _, r := range importInto(t, store, claude{}, dir) {
			if r.Err != nil {
				t.Errorf("%s: %v", name, r.Err)
			}
		}
		same(t, contents(t, plain), contents(t, store))
		_ = store.Close()
	}
}

// TestForkOfFork: rollouts of Codex's, each of which repeats the one before, with its first
// line.
func TestForkOfFork(t *testing.T) {
	forked := func(id, from string) string {
		return strings.Replace(lines(id, cxMeta), `"forked_from_id":null`, `"forked_from_id":"`+from+`"`, 1)
	}
	first := lines("g", cxMeta, cxContext, cxUser, cxAnswer)
	second := forked("p", "g") + first + lines("p", cxTurn2, cxPatch, cxFailed)
	third := forked("c", "p") + second + lines("c", strings.Replace(cxTurn2, "t2", "t3", 1), cxThink)
	early := forked("e", "p") + forked("p", "g") + lines("g", cxMeta, cxContext) + lines("e", strings.Replace(cxTurn2, "t2", "t3", 1))
	dir, store := t.TempDir(), memstore.New()
	defer store.Close()
	files{rollout + "g.jsonl": first, rollout + "p.jsonl": second, rollout + "c.jsonl": third, rollout + "e.jsonl": early}.write(t, dir)
	for range 2 {
		for _, r := range importInto(t, store, codex{}, dir) {
			if r.Err != nil || r.Remark != "" {
				t.Errorf("%s: %v, %s", r.Session, r.Err, r.Remark)
			}
		}
	}
	for id, want := range map[hansard.SessionID]struct {
		parent hansard.Parent
		kinds  string
	}{
		"codex:p": {hansard.Parent{ID: "codex:g", At: 4}, "iimmfiicr"},
		"codex:c": {hansard.Parent{ID: "codex:p", At: 9}, "iimmfiicrfiit"},
		// It leaves the second before anything that is the second's own.
		"codex:e": {hansard.Parent{}, "iiiii"},
	} {
		info, err := store.Stat(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		kinds := ""
		for _, e := range events(t, store, id) {
			kinds += letters[e.Kind]
		}
		if parentOf(&info) != want.parent || kinds != want.kinds {
			t.Errorf("%s is a fork of %v with %s, want %v with %s", id, parentOf(&info), kinds, want.parent, want.kinds)
		}
	}
}
