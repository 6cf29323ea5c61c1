package importer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hansard"
	"hansard/memstore"
	"hansard/transcript"
)

const (
	gmHead   = `{"sessionId":"SESSION","projectHash":"abc","startTime":"2026-08-01T10:00:00Z","lastUpdated":"2026-08-01T10:00:00Z","kind":"main","directories":["/w"]}`
	gmUser   = `{"id":"m1","timestamp":"2026-08-01T10:00:01Z","type":"user","content":[{"text":"hello there"}]}`
	gmAnswer = `{"id":"m2","timestamp":"2026-08-01T10:00:02Z","type":"gemini","content":"","thoughts":[{"subject":"Plan","description":"look","timestamp":"2026-08-01T10:00:02Z"}],"tokens":{"input":900,"output":40,"cached":700,"thoughts":12,"tool":0,"total":952},"model":"gemini-x","toolCalls":[{"id":"c1","name":"run_shell_command","args":{"command":"ls"},"status":"success","timestamp":"2026-08-01T10:00:03Z","result":[{"functionResponse":{"id":"c1","name":"run_shell_command","response":{"output":"a.go"}}}]},{"id":"c2","name":"read","args":{},"status":"executing"}]}`
	gmMore   = `{"id":"m2","timestamp":"2026-08-01T10:00:02Z","type":"gemini","content":"There is a.go.","tokens":{"input":900,"output":55,"cached":700,"thoughts":12,"tool":0,"total":967},"model":"gemini-x"}`
	gmSet    = `{"$set":{"messages":[],"lastUpdated":"2026-08-01T10:00:05Z"}}`
	gmTitle  = `{"$set":{"summary":"Greeting"}}`
	gmRewind = `{"$rewindTo":"m2"}`
	gmWarn   = `{"id":"m3","timestamp":"2026-08-01T10:00:06Z","type":"warning","content":"careful"}`
	gmOdd    = `{"id":"m4","type":"novelty","content":"?"}`
)

func TestGemini(t *testing.T) {
	used := transcript.Tokens{Input: 900, Output: 55, CacheRead: 700, Reasoning: 12}
	checkFormat(t, gemini{}, []formatCase{
		{name: "lines", grows: true, files: files{"p/chats/session-2026-08-01T10-00-abcd.jsonl": lines("g1", gmHead, gmUser, gmAnswer, gmMore, gmSet, gmTitle, gmRewind, gmWarn, gmOdd)},
			sessions: map[hansard.SessionID]wanted{"gemini:g1": {kinds: "imcmsiiix", title: "Greeting", calls: 2, open: []string{"c2"}, usage: used,
				labels: map[string]string{"cwd": "/w", "model": "gemini-x"}}}},
		{name: "sub-agent", grows: true, files: files{
			"p/chats/session-2026-08-01T10-00-abcd.jsonl": lines("g1", gmHead, gmUser),
			"p/chats/g1/g2.jsonl":                         lines("g2", strings.Replace(gmHead, "main", "subagent", 1), gmUser)},
			sessions: map[hansard.SessionID]wanted{"gemini:g1": {kinds: "im", title: "hello there"},
				"gemini:g2": {kinds: "im", title: "hello there", labels: map[string]string{"parent": "gemini:g1"}}}},
		{name: "older", files: files{"p/chats/session-1.json": `{"sessionId":"g3","projectHash":"x","messages":[` + gmUser + ",\n " + gmAnswer + `],"lastUpdated":"2026-01-01T00:00:00Z"}`},
			sessions: map[hansard.SessionID]wanted{"gemini:g3": {kinds: "iimc", title: "hello there", calls: 2, open: []string{"c2"},
				usage: transcript.Tokens{Input: 900, Output: 40, CacheRead: 700, Reasoning: 12}}}},
		{name: "damage", grows: true, files: files{"p/chats/session-9.jsonl": lines("g4", gmHead, gmUser+gmWarn, gmAnswer[:80]+gmMore, "\x00") + gmRewind},
			sessions: map[hansard.SessionID]wanted{"gemini:g4": {kinds: "imim", title: "hello there", damage: 4, usage: used}}},
	})
}

const (
	cpStart    = `{"type":"session.start","data":{"sessionId":"SESSION","copilotVersion":"1.0.3","context":{"cwd":"/w","branch":"main"}},"id":"e1","timestamp":"2026-08-01T10:00:00Z","parentId":null}`
	cpUser     = `{"type":"user.message","data":{"content":"typed text","transformedContent":"text as sent"},"id":"e2","timestamp":"2026-08-01T10:00:01Z","parentId":"e1"}`
	cpAnswer   = `{"type":"assistant.message","data":{"content":"","reasoningText":"hm","toolRequests":[{"toolCallId":"c1","name":"bash","arguments":{"command":"ls"}},{"toolCallId":"c2","name":"task","arguments":{}}],"outputTokens":40},"id":"e3","timestamp":"2026-08-01T10:00:02Z","parentId":"e2"}`
	cpResult   = `{"type":"tool.execution_complete","data":{"toolCallId":"c1","success":true,"result":{"content":"a.go"}},"id":"e4","timestamp":"2026-08-01T10:00:03Z","parentId":"e3"}`
	cpModel    = `{"type":"session.model_change","data":{"newModel":"claude-sonnet-4.6"},"id":"e5","timestamp":"2026-08-01T10:00:04Z","parentId":"e4"}`
	cpCompact  = `{"type":"session.compaction_complete","data":{"summary":"…"},"id":"e6","timestamp":"2026-08-01T10:00:05Z","parentId":"e5"}`
	cpAgent    = `{"type":"assistant.message","data":{"content":"found it"},"id":"e7","agentId":"ag1","timestamp":"2026-08-01T10:00:06Z","parentId":"e6"}`
	cpShutdown = `{"type":"session.shutdown","data":{"modelMetrics":{"m":{"usage":{"inputTokens":10,"cacheReadTokens":3,"cacheWriteTokens":2,"outputTokens":5,"reasoningTokens":1}}}},"id":"e8","timestamp":"2026-08-01T10:00:07Z","parentId":"e7"}`
	cpAgain    = `{"type":"session.shutdown","data":{"modelMetrics":{"m":{"usage":{"inputTokens":20,"outputTokens":9}},"n":{"usage":{"inputTokens":1}}}},"id":"e9","timestamp":"2026-08-01T10:00:08Z","parentId":"e8"}`
	cpUnknown  = `{"type":"quantum.leap","data":{},"id":"e10","timestamp":"2026-08-01T10:00:09Z","parentId":"e9"}`
)

func TestCopilot(t *testing.T) {
	checkFormat(t, copilot{}, []formatCase{
		{name: "events", grows: true, files: files{
			"s1/events.jsonl":   lines("s1", cpStart, cpUser, cpAnswer, cpResult, cpModel, cpCompact, cpAgent, cpShutdown, cpAgain, cpUnknown),
			"s1/workspace.yaml": "id: s1\ncwd: /w\nname: \"My work\"\nuser_named: true\n",
		}, sessions: map[hansard.SessionID]wanted{
			"copilot:s1": {kinds: "iimcrisiix", title: "My work", calls: 2, open: []string{"c2"}, usage: transcript.Tokens{Input: 21, Output: 9},
				labels: map[string]string{"cwd": "/w", "branch": "main", "model": "claude-sonnet-4.6", "version": "1.0.3"}},
			"copilot:s1:ag1": {kinds: "m", labels: map[string]string{"parent": "copilot:s1"}},
		}},
		{name: "older", grows: true, files: files{"s2.jsonl": lines("s2", cpStart, cpUser, cpAnswer+cpResult, cpModel[:30]+cpCompact, "\x00") + cpUnknown},
			sessions: map[hansard.SessionID]wanted{"copilot:s2": {kinds: "imcrs", title: "typed text", calls: 2, open: []string{"c2"}, damage: 4}}},
	})
}

const (
	piHead    = `{"type":"session","version":3,"id":"SESSION","timestamp":"2026-08-01T10:00:00Z","cwd":"/w"}`
	piUser    = `{"type":"message","id":"00000001","parentId":null,"timestamp":"2026-08-01T10:00:01Z","message":{"role":"user","content":[{"type":"text","text":"do it"}]}}`
	piAnswer  = `{"type":"message","id":"00000002","parentId":"00000001","timestamp":"2026-08-01T10:00:02Z","message":{"role":"assistant","model":"m-1","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"s"},{"type":"toolCall","id":"c1","name":"bash","arguments":{"command":"ls"}}],"usage":{"input":5,"output":6,"cacheRead":7,"cacheWrite":8,"totalTokens":26,"cost":{"total":0.1}},"stopReason":"toolUse"}}`
	piResult  = `{"type":"message","id":"00000003","parentId":"00000002","timestamp":"2026-08-01T10:00:03Z","message":{"role":"toolResult","toolCallId":"c1","toolName":"bash","isError":true,"content":[{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]}}`
	piCompact = `{"type":"compaction","id":"00000004","parentId":"00000003","timestamp":"2026-08-01T10:00:04Z","summary":"so far","firstKeptEntryId":"00000003","tokensBefore":1000}`
	piInfo    = `{"type":"session_info","id":"00000005","parentId":"00000004","timestamp":"2026-08-01T10:00:05Z","name":"Listing"}`
	piOdd     = `{"type":"wormhole","id":"00000006","parentId":"00000005","timestamp":"2026-08-01T10:00:06Z"}`
	piOther   = `{"type":"message","id":"00000007","parentId":"00000001","timestamp":"2026-08-01T10:00:07Z","message":{"role":"user","content":"another branch"}}`
)

func TestPi(t *testing.T) {
	used := transcript.Tokens{Input: 5, Output: 6, CacheRead: 7, CacheWrite: 8}
	checkFormat(t, pi, []formatCase{
		{name: "tree", grows: true, files: files{"--w--/2026_p1.jsonl": lines("p1", piHead, piUser, piAnswer, piResult, piCompact, piInfo, piOdd, piOther)},
			sessions: map[hansard.SessionID]wanted{"pi:p1": {kinds: "imcrsixm", title: "Listing", calls: 1, usage: used, labels: map[string]string{"cwd": "/w", "model": "m-1"}}}},
		{name: "branch", files: files{
			"--w--/2026_p1.jsonl": lines("p1", piHead, piUser, piAnswer, piResult),
			"--w--/2026_p2.jsonl": lines("p2", strings.Replace(piHead, `"cwd":"/w"`, `"cwd":"/w","parentSession":"/x/2026_p1.jsonl"`, 1), piUser, piAnswer, piOther)},
			sessions: map[hansard.SessionID]wanted{"pi:p1": {kinds: "imcr", title: "do it", calls: 1, usage: used},
				"pi:p2": {kinds: "imcfim", title: "do it", copied: 2, fork: hansard.Parent{ID: "pi:p1", At: 3}, labels: map[string]string{"forked-at": "", "source": "p2"}}}},
		{name: "damage", grows: true, files: files{"--w--/2026_p3.jsonl": lines("p3", piHead, piUser+piAnswer, piResult[:50]+piCompact, "\x00") + piInfo},
			sessions: map[hansard.SessionID]wanted{"pi:p3": {kinds: "imcs", title: "do it", calls: 1, open: []string{"c1"}, usage: used, damage: 4}}},
	})
}

func TestOpenClaw(t *testing.T) {
	checkFormat(t, openclaw, []formatCase{{name: "archives", files: files{
		"agents/main/sessions/o1.jsonl":                  lines("o1", piHead, piUser),
		"agents/main/sessions/o2.jsonl.reset.2026-08-01": lines("o2", piHead, piUser, piOther),
		"agents/main/sessions/sessions.json":             `{"agent:main:main":{"sessionId":"o1","updatedAt":1}}`,
	}, sessions: map[hansard.SessionID]wanted{
		"openclaw:o1": {kinds: "im", title: "do it", labels: map[string]string{"key": "agent:main:main", "tool": "openclaw"}},
		"openclaw:o2": {kinds: "imm", title: "do it", labels: map[string]string{"archived": "reset"}},
	}}})
}

func TestCortex(t *testing.T) {
	const user = `{"timestamp":"2026-02-11T00:00:00Z","role":"user","content":"hi"}`
	const answer = `{"timestamp":"2026-02-11T00:00:01Z","role":"assistant","content":"hello"}`
	checkFormat(t, cortex{}, []formatCase{{name: "pair", grows: true, files: files{
		"app-server/sessions/x1.json":  `{"id":"x1","model":"gpt-4o","cwd":"/tmp","title":"A talk","created_at":1739232000}`,
		"app-server/history/x1.jsonl":  lines("", user, answer, user+answer, user[:20]+answer) + user,
		"app-server/history/.x.lock":   "",
		"app-server/sessions/x2.json":  "",
		"app-server/history/x2.jsonl":  lines("", user),
		"app-server/sessions/x3.json":  `{"id":"x3"}`,
		"app-server/history/notes.txt": "no",
	}, sessions: map[hansard.SessionID]wanted{
		"cortex:x1": {kinds: "immmmm", title: "A talk", damage: 3, labels: map[string]string{"cwd": "/tmp", "model": "gpt-4o"}},
		"cortex:x2": {kinds: "m", title: "hi", damage: 1},
		"cortex:x3": {kinds: "i"},
	}}})
}

const trajectory = `{"id":"traj_1","version":1,"task":{"title":"Fix it","source":{"system":"github","id":"GH#1"}},"status":"completed","startedAt":"2026-05-13T10:49:12.464Z","completedAt":"2026-05-13T10:53:03.748Z",
 "agents":[{"name":"lead","role":"lead","joinedAt":"2026-05-13T10:49:12.464Z"}],
 "chapters":[{"id":"ch_1","title":"Look","agentName":"lead","startedAt":"2026-05-13T10:49:12.464Z","events":[
   {"ts":1770000000000,"type":"prompt","content":"fix it"},{"ts":1770000001000,"type":"thinking","content":"hm"},
   {"ts":1770000002000,"type":"decision","content":"do","raw":{"question":"?"}},{"ts":1770000003000,"type":"warp","content":"?"}]}],
 "retrospective":{"summary":"done","approach":"direct","confidence":0.90},"commits":[],"filesChanged":[],"projectId":"p","tags":[]}`

func TestTrajectories(t *testing.T) {
	checkFormat(t, trajectories{}, []formatCase{{name: "completed", files: files{
		"completed/2026-05/traj_1.json": trajectory,
		"active/traj_2.json":            `{"id":"traj_2","version":1,"task":{"title":"Go on"},"status":"active","startedAt":"2026-05-13T10:49:12Z","chapters":[]}`,
		"index.json":                    `{"version":1,"trajectories":{}}`,
	}, sessions: map[hansard.SessionID]wanted{
		"trajectories:traj_1": {kinds: "iimtmxs", title: "Fix it", labels: map[string]string{"status": "completed", "project": "p"}},
		"trajectories:traj_2": {kinds: "i", title: "Go on"},
	}}})
}

// TestRevision: a tool's record that has changed is stored once more, and known again.
func TestRevision(t *testing.T) {
	dir := t.TempDir()
	files{"traj_1.json": trajectory}.write(t, dir)
	store, _ := imported(t, trajectories{}, dir)
	files{"traj_1.json": strings.Replace(trajectory, `"content":"hm"`, `"content":"hmm"`, 1)}.write(t, dir)
	for i, want := range []int{1, 0} {
		if r := importInto(t, store, trajectories{}, dir); r[0].Added != want || r[0].Err != nil {
			t.Errorf("import %d after the change added %d events, %v", i, r[0].Added, r[0].Err)
		}
	}
	all := events(t, store, "trajectories:traj_1")
	if last := all[len(all)-1]; last.Kind != KindRevision || !strings.Contains(string(last.Data), "hmm") {
		t.Errorf("the last event is %s %s", last.Kind, last.Data)
	}
}

// cleverSum is what Python says: hashlib.sha256(json.dumps(export, sort_keys=True, default=str).encode()).hexdigest()
const cleverSum = "95590805b394ae3ee9f799c36e76074e753d6cfac753b190c5bc0d68601fecd4"

// clever is an export with a checksum as Python makes it.
func clever(prefix string) string {
	body := `{"schema_version": "1.0", "session_id": "01HXYZ", "actor_name": "local/orchestrator", "created_at": "2026-03-01T10:00:00+00:00", "token_usage": {"input_tokens": 12, "output_tokens": 34, "estimated_cost": 0.1}, "messages": [{"message_id": "M1", "role": "user", "content": "Grüße \ud83d\ude00", "sequence": 0, "timestamp": "2026-03-01T10:00:01+00:00"}, {"message_id": "M2", "role": "assistant", "content": "hello", "sequence": 1, "timestamp": "2026-03-01T10:00:02+00:00", "metadata": {}}]`
	return body + `, "checksum": "` + prefix + cleverSum + `"}`
}

func TestCleverAgents(t *testing.T) {
	used := transcript.Tokens{Input: 12, Output: 34}
	want := map[hansard.SessionID]wanted{"cleveragents:01HXYZ": {kinds: "imm", title: "Grüße 😀", usage: used, labels: map[string]string{"agent": "local/orchestrator"}}}
	checkFormat(t, cleverAgents{}, []formatCase{
		{name: "export", files: files{"x.json": clever("")}, sessions: want},
		{name: "prefix", files: files{"x.json": clever("sha256:")}, sessions: want},
	})
	dir := t.TempDir()
	files{"x.json": strings.Replace(clever(""), "hello", "hullo", 1)}.write(t, dir)
	store, reports := imported(t, cleverAgents{}, dir)
	if reports[0].Err == nil || len(contents(t, store)) > 0 {
		t.Errorf("an export that was changed was imported: %v", reports[0].Err)
	}
	files{"x.json": clever("")[:500]}.write(t, dir)
	if reports := importInto(t, store, cleverAgents{}, dir); reports[0].Err == nil {
		t.Error("nothing of an export that was cut off is imported, and it is not an error")
	}
}

// readOnly is a store that may not be written to, as a directory of another user.
type readOnly struct{ hansard.Store }

func (readOnly) Append(context.Context, hansard.SessionID, hansard.Batch) (hansard.Receipt, error) {
	return hansard.Receipt{}, fmt.Errorf("%w: %w", hansard.ErrReadOnly, &fs.PathError{Op: "open", Path: "sync.lock", Err: fs.ErrPermission})
}

// TestReadOnlyStore: what is wrong with the store is said once, and not of every source.
func TestReadOnlyStore(t *testing.T) {
	dir := t.TempDir()
	files{"a.json": `[{"role":"user","content":"a"}]`, "b.json": `[{"role":"user","content":"b"}]`}.write(t, dir)
	f, _ := Find(Formats(), "openai")
	sources, err := Named([]Format{f}, []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New()
	t.Cleanup(func() { _ = store.Close() })
	err = (&Engine{Store: readOnly{store}, Workers: 1}).Run(t.Context(), sources, func(r Report) { t.Errorf("%s: %v", r.Source.Path, r.Err) })
	if !errors.Is(err, hansard.ErrReadOnly) {
		t.Error(err)
	}
}

// TestSecondDocument: what follows the value of a file is not left out without a word.
func TestSecondDocument(t *testing.T) {
	const one = `[{"role":"user","content":"a"}]` + "\n"
	for rest, whole := range map[string]bool{"": true, " \n\t": true, one: false, "x": false} {
		dir := t.TempDir()
		files{"x.json": one + rest}.write(t, dir)
		f, _ := Find(Formats(), "openai")
		_, reports := imported(t, f, dir)
		if got := reports[0]; got.Records != 1 || (len(got.Damage) == 0) != whole {
			t.Errorf("followed by %q: %d records, damage %v", rest, got.Records, got.Damage)
		}
	}
}

func TestMessages(t *testing.T) {
	const openAI = `[{"role":"system","content":"be kind"},
  {"role":"user","content":"weather?"},
  {"role":"assistant","content":null,"tool_calls":[{"id":"call_a","type":"function","function":{"name":"w","arguments":"{}"}},{"id":"call_b","type":"function","function":{"name":"w","arguments":"{}"}}]},
  {"role":"tool","tool_call_id":"call_a","content":"sunny"},
  {"role":"assistant","content":"It is sunny.","usage":{"prompt_tokens":5,"completion_tokens":6}},
  {"type":"function_call","call_id":"call_c","name":"w","arguments":"{}"},{"type":"function_call_output","call_id":"call_c","output":"x"},{"what":1}]`
	const claudes = `{"model":"claude-x","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"tool_use","id":"t1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"ok"}]}]}`
	dir := t.TempDir()
	files{"a.json": openAI, "b.json": claudes, "c.json": openAI[:300], "d.jsonl": lines("", `{"role":"user","content":"one","ts":1770000000}`, `{"role":"assistant","content":"two"}`, `[1,2]`) + `{"role":"user","content":"three"}`}.write(t, dir)
	paths := []string{}
	for _, name := range []string{"a.json", "b.json", "c.json", "d.jsonl"} {
		paths = append(paths, filepath.Join(dir, name))
	}
	store := memstore.New()
	defer store.Close()
	for round := range 2 {
		sources, err := Named(Formats(), paths)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]Report{}
		if err := (&Engine{Store: store}).Run(context.Background(), sources, func(r Report) { got[r.Source.Path] = r }); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]struct {
			format                        string
			added, calls, results, damage int
		}{"a.json": {"openai", 8, 3, 2, 0}, "b.json": {"anthropic", 4, 1, 1, 0}, "c.json": {"openai", 3, 2, 0, 1}, "d.jsonl": {"jsonl", 4, 0, 0, 0}} {
			r := got[path]
			if round == 1 {
				want.added = 0
			}
			if r.Err != nil || r.Source.Format.Name() != want.format || r.Added != want.added || r.Calls != want.calls || r.Results != want.results || len(r.Damage) != want.damage {
				t.Errorf("round %d, %s: %+v, want %+v", round, path, r, want)
			}
		}
	}
	info, err := store.Stat(context.Background(), hansard.SessionID("openai:"+byPath(&Source{Root: dir, Path: "a.json"})))
	if err != nil || info.Title != "weather?" {
		t.Errorf("%+v, %v", info, err)
	}
	all := files{"a": openAI, "b": claudes, "d": `{"role":"user","content":"one","ts":1770000000} {"role":"assistant","content":"two"} [1,2] {"role":"user","content":"three"}`}
	checkBytes(t, store, all)
}

// TestLargeElement: an element of an array that is too large for an event is attached.
func TestLargeElement(t *testing.T) {
	dir := t.TempDir()
	large := `{"role":"user","content":"` + strings.Repeat("x", 17<<20) + `"}`
	files{"a.json": `[{"role":"user","content":"small"},` + large + `]`}.write(t, dir)
	store, reports := imported(t, openai, dir)
	if r := reports[0]; r.Err != nil || r.Added != 2 {
		t.Fatalf("%d events, %v", r.Added, r.Err)
	}
	checkBytes(t, store, files{"a": large + `{"role":"user","content":"small"}`})
	if r := importInto(t, store, openai, dir)[0]; r.Err != nil || r.Added != 0 {
		t.Errorf("%d events were added again, %v", r.Added, r.Err)
	}
}

// TestDirectories: what is in a directory is told apart; chats are taken when they are
// asked for; links are not followed.
func TestDirectories(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	files{
		".claude/projects/-w/1.jsonl":             clMain("1"),
		".claude/.credentials.json":               `{"session_id":"x","messages":[],"checksum":"secret"}`,
		".claude/history.jsonl":                   `{"display":"x","sessionId":"1"}` + "\n",
		".codex/sessions/" + rollout + "th.jsonl": lines("th", cxFirst...),
		".codex/history.jsonl":                    `{"session_id":"x","ts":1,"text":"y"}` + "\n",
		".gemini/tmp/p/chats/session-1.jsonl":     lines("g1", gmHead, gmUser),
		".pi/agent/sessions/--w--/1_p1.jsonl":     lines("p1", piHead, piUser),
		".copilot/session-state/s1/events.jsonl":  lines("s1", cpStart),
		"chat.json":                               `[{"role":"user","content":"x"}]`,
	}.write(t, dir)
	files{"secret.jsonl": clMain("secret")}.write(t, outside)
	if err := os.Symlink(filepath.Join(outside, "secret.jsonl"), filepath.Join(dir, ".claude/projects/-w/2.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, ".claude/projects/-x")); err != nil {
		t.Fatal(err)
	}
	// One that is known by its name alone.
	if err := os.Symlink(filepath.Join(outside, "secret.jsonl"), filepath.Join(dir, ".codex/sessions", rollout+"evil.jsonl")); err != nil {
		t.Fatal(err)
	}
	names := func(sources []*Source, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range sources {
			out = append(out, string(SessionID(s.Format, s.Session)))
		}
		return strings.Join(out, " ")
	}
	machine := Machine{Home: dir, Dir: dir, Getenv: func(string) string { return "" }}
	const all = "claude:1 codex:th gemini:g1 copilot:s1 pi:p1"
	if got := names(Discover(Formats(), machine)); got != all {
		t.Errorf("found %s, want %s", got, all)
	}
	if got := names(Named(Formats(), []string{dir})); len(strings.Fields(got)) != 5 {
		t.Errorf("found %s in the directory, want %s", got, all)
	}
	if got := names(Named([]Format{openai}, []string{filepath.Join(dir, "chat.json")})); !strings.HasPrefix(got, "openai:chat-") {
		t.Errorf("found %s", got)
	}
	if _, err := Named(Formats(), []string{filepath.Join(dir, "nothing")}); err == nil {
		t.Error("a file that is not there was found")
	}
	if f, err := (&Source{Root: filepath.Join(dir, ".claude/projects"), Path: "-w/2.jsonl"}).open(); err == nil {
		f.Close()
		t.Error("a link out of the root was followed")
	}
}

// FuzzFormats: no bytes make a format panic, or store an event that is not in them.
func FuzzFormats(f *testing.F) {
	for _, seed := range []string{clMain("1"), lines("th", cxFirst...), lines("g", gmHead, gmAnswer), lines("s", cpStart, cpAnswer, cpShutdown), lines("p", piHead, piAnswer), trajectory,
		clever(""), "[{\"role\":\"user\"}]", "\x00{\"", "{}{}", `{"type":"user","message":[],"uuid":{}}`} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		store := memstore.New()
		defer store.Close()
		for _, format := range Formats() {
			for _, name := range []string{"x.jsonl", "x.json"} {
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
				head := func() []byte { return data }
				format.Match(filepath.Join(dir, name), head)
				s := &Source{Format: format, Root: dir, Path: name}
				format.Identify(s, data)
				err := (&Engine{Store: store}).Run(context.Background(), []*Source{s}, func(Report) {})
				if err != nil {
					t.Fatalf("%s: %v", format.Name(), err)
				}
			}
		}
	})
}

// TestUnreadable: a directory that may not be looked into is reported, and does not keep
// the others out.
func TestUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("SKIPPED: root may look everywhere; test.TestImportUnreadable does it as another user")
	}
	dir := t.TempDir()
	files{"-v/1.jsonl": clMain("1"), "-w/2.jsonl": clMain("2")}.write(t, dir)
	if err := os.Chmod(filepath.Join(dir, "-v"), 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Join(dir, "-v"), 0o700) // to be removed
	store, reports := imported(t, claude{}, dir)
	if len(reports) != 2 || len(contents(t, store)) != 1 {
		t.Errorf("%d reports, %d sessions", len(reports), len(contents(t, store)))
	}
}

// otherwise is a format that says other things about the same records, as another version
// of this program may.
type otherwise struct{ claude }

func (o otherwise) Read(ctx context.Context, in *Input, emit func(Record) error) error {
	return o.claude.Read(ctx, in, func(rec Record) error {
		rec.Event.Kind, rec.Event.Role, rec.Event.Author = "other", "other", "other"
		if rec.Title != "" {
			rec.Title += ", otherwise"
		}
		return emit(rec)
	})
}

// TestAnotherVersion: what is said otherwise about a record that is stored does not store
// it again; a title that differs is stored once.
func TestAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	files{"-w/1.jsonl": lines("1", clU1, clThink, clCall, clResult, clAnswer, strings.Replace(clAnswer, "Done.", "Done!", 1), clBound)}.write(t, dir)
	store, _ := imported(t, claude{}, dir)
	before := len(events(t, store, "claude:1"))
	for i, want := range []int{1, 0, 0} {
		if r := importInto(t, store, otherwise{}, dir)[0]; r.Added != want || r.Err != nil {
			t.Errorf("import %d by another version added %d events, want %d; %v", i, r.Added, want, r.Err)
		}
	}
	if got := len(events(t, store, "claude:1")); got != before+1 {
		t.Errorf("%d events, want %d", got, before+1)
	}
	if r := importInto(t, store, claude{}, dir)[0]; r.Added != 0 || r.Err != nil {
		t.Errorf("the first version added %d events, %v", r.Added, r.Err)
	}
}

// TestPlainInput: a member that may be an array of messages, and is something else, is kept, too,
// and other members byte for byte.
func TestPlainInput(t *testing.T) {
	dir := t.TempDir()
	files{"r.json": `{"model":"m","input":"weather <in> \u00fc?","messages":null,"items":1.50,"output":[ {"role":"assistant","content":"<sunny>"}]}`}.write(t, dir)
	store, reports := imported(t, openai, dir)
	all := sorted(contents(t, store))
	for _, want := range []string{`{"input":"weather <in> ü?"}`, `{"messages":null}`, `{"items":1.50}`, `{"output":[ {"role":"assistant","content":"<sunny>"}]}`} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is missing in\n%s\n%+v", want, all, reports)
		}
	}
}
