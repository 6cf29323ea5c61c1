package exporter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hansard"
	"hansard/exporter"
	"hansard/importer"
	"hansard/memstore"
)

// imported imports files that the named tool could have written.
func imported(t *testing.T, format string, files map[string]string) hansard.Importer {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store := memstore.New()
	t.Cleanup(func() { _ = store.Close() })
	f, ok := importer.Find(importer.Formats(), format)
	if !ok {
		t.Fatal(format)
	}
	sources, err := importer.Named([]importer.Format{f}, []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	err = (&importer.Engine{Store: store}).Run(context.Background(), sources, func(r importer.Report) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func export(t *testing.T, store hansard.Store, id hansard.SessionID, format string) string {
	t.Helper()
	f, ok := exporter.Find(format)
	if !ok {
		t.Fatal(format)
	}
	var out bytes.Buffer
	if err := f.Write(context.Background(), store, id, &out); err != nil {
		t.Fatalf("%s as %s: %v", id, format, err)
	}
	return out.String()
}

// names are the ids and bytes of a session's events.
func names(t *testing.T, store hansard.Store, id hansard.SessionID) string {
	t.Helper()
	var out strings.Builder
	for e, err := range store.Read(context.Background(), id, hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(e.ID + " " + e.Kind + " " + string(e.Data) + "\n")
	}
	return out.String()
}

const claudeMain = `{"type":"ai-title","title":"Fixing","sessionId":"4"}
{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"4","timestamp":"2026-08-01T10:00:00.000Z","cwd":"/w","message":{"role":"user","content":"fix  <b>it</b>"}}
{"type":"assistant","uuid":"a1","parentUuid":"u1","sessionId":"4","requestId":"r1","message":{"id":"m1","role":"assistant","model":"c","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"go test","n":1.50}}],"usage":{"input_tokens":9,"output_tokens":5}}}
{"type":"user","uuid":"u2","parentUuid":"a1","sessionId":"4","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"ok"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]}]}}
`
const claudeRest = `{"type":"assistant","uuid":"a2","parentUuid":"u2","sessionId":"4","requestId":"r2","message":{"id":"m2","role":"assistant","model":"c","content":[{"type":"text","text":"Done."}]}}
`

// fork is the history of session 4, without what is never copied, as that of session 5.
var fork = strings.ReplaceAll(claudeMain[strings.Index(claudeMain, "\n")+1:], `"sessionId":"4"`, `"sessionId":"5"`) +
	`{"type":"user","uuid":"z1","parentUuid":"u2","sessionId":"5","message":{"role":"user","content":"otherwise"}}` + "\n"

// TestClaudeBack: import → export → the same bytes, a fork with its parent's records, and
// a record that is too large for an event.
func TestClaudeBack(t *testing.T) {
	long := `{"type":"user","uuid":"big","sessionId":"6","message":{"role":"user","content":"` + strings.Repeat("x", 17<<20) + `"}}` + "\n"
	store := imported(t, "claude", map[string]string{"projects/-w/4.jsonl": claudeMain + claudeRest, "projects/-w/5.jsonl": fork, "projects/-w/6.jsonl": long + `{"type":"user","uuid":"x1","sessionId":"6","message":{"role":"user","content":"y"}}` + "\n"})
	for id, want := range map[hansard.SessionID]string{"claude:4": claudeMain + claudeRest, "claude:5": fork, "claude:6": long + `{"type":"user","uuid":"x1","sessionId":"6","message":{"role":"user","content":"y"}}` + "\n"} {
		if got := export(t, store, id, "claude"); got != want {
			t.Errorf("%s: the export has %d bytes, the file had %d:\n%.3000s", id, len(got), len(want), got)
		}
	}
	again := imported(t, "claude", map[string]string{"projects/-w/4.jsonl": export(t, store, "claude:4", "claude"), "projects/-w/5.jsonl": export(t, store, "claude:5", "claude")})
	for _, id := range []hansard.SessionID{"claude:4", "claude:5"} {
		if names(t, again, id) != names(t, store, id) {
			t.Errorf("%s: imported again it is\n%s", id, names(t, again, id))
		}
	}
}

const rollout = `{"timestamp":"2026-08-01T18:07:04.550Z","type":"session_meta","payload":{"id":"par","cwd":"/w"}}
{"timestamp":"2026-08-01T18:07:05.000Z","type":"turn_context","payload":{"turn_id":"t1","model":"g"}}
{"timestamp":"2026-08-01T18:07:05.200Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"list"}]}}
{"timestamp":"2026-08-01T18:07:07.000Z","type":"response_item","payload":{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"ls\"}","call_id":"call_1"}}
{"timestamp":"2026-08-01T18:07:08.000Z","type":"response_item","payload":{"type":"function_call_output","call_id":"call_1","output":"a.go"}}
`

func TestCodexBack(t *testing.T) {
	child := `{"timestamp":"2026-08-01T19:07:04.550Z","type":"session_meta","payload":{"id":"frk","forked_from_id":"par","cwd":"/w"}}` + "\n" + rollout +
		`{"timestamp":"2026-08-01T19:08:00.000Z","type":"turn_context","payload":{"turn_id":"t2","model":"g"}}` + "\n"
	const at = "sessions/2026/08/01/rollout-2026-08-01T18-07-04-"
	store := imported(t, "codex", map[string]string{at + "par.jsonl": rollout, at + "frk.jsonl": child})
	for id, want := range map[hansard.SessionID]string{"codex:par": rollout, "codex:frk": child} {
		if got := export(t, store, id, "codex"); got != want {
			t.Errorf("%s: the export is\n%s\nwant\n%s", id, got, want)
		}
	}
}

// TestCodexGap: where lines of a rollout could not be read, or were redacted since, an export leaves
// them blank, so that the others are the same records if it is imported again.
func TestCodexGap(t *testing.T) {
	const at = "sessions/2026/08/01/rollout-2026-08-01T18-07-04-par.jsonl"
	lines := strings.SplitAfter(rollout, "\n")
	torn := lines[0] + lines[1][:30] + "\n\n" + strings.Join(lines[2:], "")
	store := imported(t, "codex", map[string]string{at: torn})
	before := names(t, store, "codex:par")
	again := imported(t, "codex", map[string]string{at: export(t, store, "codex:par", "codex")})
	if got := names(t, again, "codex:par"); got != before {
		t.Errorf("imported again it is\n%s\nit was\n%s", got, before)
	}
	if _, err := store.Redact(t.Context(), "codex:par", hansard.Redaction{Seqs: []hansard.Seq{2}}); err != nil {
		t.Fatal(err)
	}
	again = imported(t, "codex", map[string]string{at: export(t, store, "codex:par", "codex")})
	for e, err := range again.Read(t.Context(), "codex:par", hansard.Range{}) {
		if err != nil || !strings.Contains(before, e.ID+" ") {
			t.Errorf("after a redaction it has %s, %v", e.ID, err)
		}
	}
	far := hansard.Event{ID: "line:9000000000000:00000000", Data: []byte(strings.TrimSpace(lines[1]))}
	if _, err := store.Append(t.Context(), "codex:par", hansard.Batch{Events: []hansard.Event{far}}); err != nil {
		t.Fatal(err)
	}
	if n := len(export(t, store, "codex:par", "codex")); n > 2*len(rollout) {
		t.Errorf("it has %d bytes", n)
	}
}

// TestOutputInFile: what was imported from a file beside a session is not in its file.
func TestOutputInFile(t *testing.T) {
	const text = `{"type":"assistant","uuid":"a1","sessionId":"7","message":{"id":"m1","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{}}]}}` + "\n" +
		`{"type":"user","uuid":"u1","sessionId":"7","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"<persisted-output>"}]},"toolUseResult":{"persistedOutputPath":"/p/7/tool-results/t1.txt"}}` + "\n"
	store := imported(t, "claude", map[string]string{"projects/-w/7.jsonl": text, "projects/-w/7/tool-results/t1.txt": "THE OUTPUT"})
	if got := kinds(t, store, "claude:7"); got != "tool_call tool_result attachment" {
		t.Fatal(got)
	}
	if got := export(t, store, "claude:7", "claude"); got != text {
		t.Errorf("it is\n%s\nwant\n%s", got, text)
	}
	for _, format := range []string{"openai", "anthropic", "codex", "cleveragents"} {
		if got := export(t, store, "claude:7", format); strings.Contains(got, "persisted_output") || strings.Contains(got, "THE OUTPUT") {
			t.Errorf("%s: %s", format, got)
		}
	}
}

// mine is a fork that was made here.
const mine = "5f2c1111-1111-4111-8111-111111111111"

// TestForksBack: forks of forks, and one that was made here of an imported fork.
func TestForksBack(t *testing.T) {
	five := fork
	own := func(id, uuid string) string {
		return `{"type":"user","uuid":"` + uuid + `","parentUuid":"u2","sessionId":"` + id + `","message":{"role":"user","content":"more"}}` + "\n"
	}
	title := `{"type":"custom-title","customTitle":"Mine","sessionId":"5"}` + "\n"
	six := strings.ReplaceAll(fork, `"sessionId":"5"`, `"sessionId":"6"`) + own("6", "y1")
	store := imported(t, "claude", map[string]string{"projects/-w/4.jsonl": claudeMain + claudeRest, "projects/-w/5.jsonl": five + title, "projects/-w/6.jsonl": six})
	info, err := store.Stat(t.Context(), "claude:6")
	if err != nil || info.Parent == nil || info.Parent.ID != "claude:5" {
		t.Fatalf("%+v, %v", info, err)
	}
	if _, err := store.Fork(t.Context(), "claude:5", hansard.Fork{As: mine}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[hansard.SessionID]string{"claude:5": five + title, "claude:6": six, mine: strings.ReplaceAll(five, `"sessionId":"5"`, `"sessionId":"`+mine+`"`)} {
		if got := export(t, store, id, "claude"); got != want {
			t.Errorf("%s is\n%s\nwant\n%s", id, got, want)
		}
	}
	forked := func(id, from string) string {
		return `{"timestamp":"2026-08-01T19:07:04.550Z","type":"session_meta","payload":{"id":"` + id + `","forked_from_id":"` + from + `"}}` + "\n"
	}
	turn := func(id string) string {
		return `{"timestamp":"2026-08-01T19:08:00.000Z","type":"turn_context","payload":{"turn_id":"` + id + `"}}` + "\n"
	}
	const at = "sessions/2026/08/01/rollout-2026-08-01T18-07-04-"
	second := forked("b", "par") + rollout + turn("t2")
	third := forked("c", "b") + second + turn("t3")
	store = imported(t, "codex", map[string]string{at + "par.jsonl": rollout, at + "b.jsonl": second, at + "c.jsonl": third})
	for id, want := range map[hansard.SessionID]string{"codex:b": second, "codex:c": third} {
		if info, err := store.Stat(t.Context(), id); err != nil || info.Parent == nil {
			t.Errorf("%s is no fork: %v", id, err)
		}
		if got := export(t, store, id, "codex"); got != want {
			t.Errorf("%s is\n%s\nwant\n%s", id, got, want)
		}
	}
}

// TestForkedHereIsAnother: a fork that was made here is another session for the tool: its file
// does not take the place of its parent's, and what is new in it is not imported into its parent.
func TestForkedHereIsAnother(t *testing.T) {
	for tool, name := range map[string]string{"claude": "projects/-w/4.jsonl", "codex": "sessions/rollout-2026-08-01T18-07-04-par.jsonl"} {
		original := map[string]string{"claude": claudeMain + claudeRest, "codex": rollout}[tool]
		id := map[string]hansard.SessionID{"claude": "claude:4", "codex": "codex:par"}[tool]
		store := imported(t, tool, map[string]string{name: original})
		fork, err := store.Fork(t.Context(), id, hansard.Fork{As: "try-2"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Append(t.Context(), "try-2", hansard.Batch{Events: []hansard.Event{hansard.Message("user", "another way")}}); err != nil {
			t.Fatal(err)
		}
		format, _ := exporter.Find(tool)
		parent, err := store.Stat(t.Context(), id)
		if err != nil || format.FileName(fork) == format.FileName(parent) {
			t.Errorf("%s: both files are called %s (%v)", tool, format.FileName(fork), err)
		}
		file := filepath.Join(filepath.Dir(name), format.FileName(fork))
		again := imported(t, tool, map[string]string{name: original, file: export(t, store, "try-2", tool)})
		if got, want := names(t, again, id), names(t, store, id); got != want {
			t.Errorf("%s: after the fork was imported the parent is\n%s\nwant\n%s", tool, got, want)
		}
		if n, err := hansard.Count(t.Context(), again, hansard.Query{Parent: id}); n != 1 || err != nil {
			t.Errorf("%s: the parent has %d forks, %v", tool, n, err)
		}
	}
}

// TestOtherTools: a session of one tool as the file of another is read by that.
func TestOtherTools(t *testing.T) {
	claude := imported(t, "claude", map[string]string{"projects/-w/4.jsonl": claudeMain + claudeRest})
	const rolloutName = "sessions/rollout-2026-08-01T18-07-04-x.jsonl"
	asCodex := imported(t, "codex", map[string]string{rolloutName: export(t, claude, "claude:4", "codex")})
	if got := kinds(t, asCodex, "codex:x"); got != "meta message tool_call tool_result message" {
		t.Errorf("as a rollout it has %s", got)
	}
	codex := imported(t, "codex", map[string]string{rolloutName: rollout})
	asClaude := imported(t, "claude", map[string]string{"projects/-w/1.jsonl": export(t, codex, "codex:x", "claude")})
	if got := kinds(t, asClaude, "claude:1"); got != "message tool_call tool_result" {
		t.Errorf("as a file of Claude Code's it has %s", got)
	}
	for _, format := range []string{"openai", "anthropic"} {
		for _, from := range []hansard.Store{claude, codex} {
			id := hansard.SessionID("claude:4")
			if from == hansard.Store(codex) {
				id = "codex:x"
			}
			text := export(t, from, id, format)
			var messages []struct {
				Role string `json:"role"`
			}
			if err := json.Unmarshal([]byte(text), &messages); err != nil || len(messages) < 3 || messages[0].Role != "user" || messages[1].Role != "assistant" {
				t.Errorf("%s as %s: %v\n%s", id, format, err, text)
			}
			if !strings.Contains(text, "call_1") && !strings.Contains(text, `"t1"`) {
				t.Errorf("%s as %s has no call:\n%s", id, format, text)
			}
		}
	}
	if text := export(t, claude, "claude:4", "anthropic"); !strings.Contains(text, `"signature":"c2ln"`) {
		t.Errorf("the signature is lost:\n%s", text)
	}
}

func kinds(t *testing.T, store hansard.Store, id hansard.SessionID) string {
	t.Helper()
	var out []string
	for e, err := range store.Read(context.Background(), id, hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Kind)
	}
	return strings.Join(out, " ")
}

// TestMessagesBack: arrays of messages come out as they went in.
func TestMessagesBack(t *testing.T) {
	const openAI = `[{"role":"user","content":"weather?"}, {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"w","arguments":"{}"}}]}, {"role":"tool","tool_call_id":"c","content":"sunny"}]`
	store := imported(t, "openai", map[string]string{"a.json": openAI})
	var id hansard.SessionID
	for info, err := range store.List(context.Background(), hansard.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		id = info.ID
	}
	var want, got any
	if err := json.Unmarshal([]byte(openAI), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(export(t, store, id, "openai")), &got); err != nil {
		t.Fatal(err)
	}
	if w, g := mustJSON(t, want), mustJSON(t, got); w != g {
		t.Errorf("got %s, want %s", g, w)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestCleverAgentsBack: an export is checked by the import, and one that was imported
// comes out with the same content and checksum.
func TestCleverAgentsBack(t *testing.T) {
	claude := imported(t, "claude", map[string]string{"projects/-w/4.jsonl": claudeMain + claudeRest})
	first := export(t, claude, "claude:4", "cleveragents")
	store := imported(t, "cleveragents", map[string]string{"x.json": first})
	if got := kinds(t, store, "cleveragents:claude:4"); got != "meta message message tool_result message" {
		t.Errorf("it has %s\n%s", got, first)
	}
	if second := export(t, store, "cleveragents:claude:4", "cleveragents"); second != first {
		t.Errorf("exported again it is\n%s\nit was\n%s", second, first)
	}
}

// TestCleverAgentsLong: an export is recognised, and its session found, however long the messages
// are and whatever the order of its members.
func TestCleverAgentsLong(t *testing.T) {
	store := memstore.New()
	b := hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", strings.Repeat("long ", 1<<17)), hansard.Message("agent", "short")}}
	if _, err := store.Append(t.Context(), "s", b); err != nil {
		t.Fatal(err)
	}
	written := export(t, store, "s", "cleveragents")
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(written), &members); err != nil {
		t.Fatal(err)
	}
	sorted, err := json.Marshal(members) // as json.dumps does with sort_keys=True
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"as it is": written, "sorted": string(sorted)} {
		path := filepath.Join(t.TempDir(), "x.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sources, err := importer.Named(importer.Formats(), []string{path})
		if err != nil {
			t.Fatal(err)
		}
		if got := sources[0]; got.Format.Name() != "cleveragents" || got.Session != "s" {
			t.Errorf("%s: it is session %s of %s", name, got.Session, got.Format.Name())
		}
	}
}

// TestOpenFence: a text that leaves a block of code open, as one that was cut off, does not make code
// of the events after it.
func TestOpenFence(t *testing.T) {
	store := memstore.New()
	t.Cleanup(func() { _ = store.Close() })
	for text, end := range map[string]string{"cut:\n```go\nx :=": "\n```\n\n## user", "~~~~\n~~~\nx": "x\n~~~~\n\n## user", "```\nx\n```": "x\n```\n\n## user", "```x``` is code": "is code\n\n## user", "   ````\n```\n  ````  ": "````  \n\n## user"} {
		receipt, err := store.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", text), hansard.Message("user", "next")}})
		if err != nil {
			t.Fatal(err)
		}
		if out := export(t, store, "s", "md"); !strings.Contains(out, end) {
			t.Errorf("%q, seq %d:\n%s", text, receipt.First, out)
		}
		if err := store.Delete(t.Context(), "s", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Create(t.Context(), "s", hansard.Meta{Reuse: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCleverAgentsForkedHere: a fork that was made here is not imported into its parent.
func TestCleverAgentsForkedHere(t *testing.T) {
	store := memstore.New()
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", "x")}}); err != nil {
		t.Fatal(err)
	}
	clever := imported(t, "cleveragents", map[string]string{"x.json": export(t, store, "s", "cleveragents")})
	if _, err := clever.Fork(t.Context(), "cleveragents:s", hansard.Fork{As: "try-2"}); err != nil {
		t.Fatal(err)
	}
	again := imported(t, "cleveragents", map[string]string{"x.json": export(t, clever, "try-2", "cleveragents")})
	if got := kinds(t, again, "cleveragents:try-2"); got != "meta message" {
		t.Errorf("it has %s", got)
	}
}

// TestCleverAgentsSum: Python finds the checksum right, as cleveragents asks it.
func TestCleverAgentsSum(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: there is no python3")
	}
	store := imported(t, "openai", map[string]string{"c.json": `[{"role":"user","content":"Grüße 😀 \u0000\u007f\u2028 </b> \"\\\t"},{"role":"assistant","content":"ok"}]`})
	var id hansard.SessionID
	for info, err := range store.List(context.Background(), hansard.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		id = info.ID
	}
	cmd := exec.Command(python, "-c", `
import hashlib, json, sys
d = json.load(sys.stdin)
given = "sha256:" + d.pop("checksum")
sys.exit(given != "sha256:" + hashlib.sha256(json.dumps(d, sort_keys=True, default=str).encode()).hexdigest())`)
	cmd.Stdin = strings.NewReader(export(t, store, id, "cleveragents"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestForPeople: nothing in a session becomes markup of the page.
func TestForPeople(t *testing.T) {
	claude := imported(t, "claude", map[string]string{"projects/-w/4.jsonl": claudeMain + claudeRest})
	html := export(t, claude, "claude:4", "html")
	for _, want := range []string{"<h1>Fixing</h1>", "fix  &lt;b&gt;it&lt;/b&gt;", "go test", `<img alt="" src="data:image/png;base64,iVBORw0KGgo=">`, "Done."} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(html, "<b>it") || strings.Contains(html, "<script") {
		t.Error("what somebody wrote became markup")
	}
	md := export(t, claude, "claude:4", "md")
	for _, want := range []string{"# Fixing", "**Bash**", "go test", "Done."} {
		if !strings.Contains(md, want) {
			t.Errorf("the Markdown lacks %s:\n%s", want, md)
		}
	}
}

// TestForkedAndRedacted: what other tools get has neither the store's records of a fork and
// a redaction nor anything in the place of what was redacted.
func TestForkedAndRedacted(t *testing.T) {
	store := imported(t, "claude", map[string]string{"projects/-w/4.jsonl": claudeMain + claudeRest})
	var parent hansard.Info
	for info, err := range store.List(t.Context(), hansard.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		parent = info
	}
	if _, err := store.Redact(t.Context(), parent.ID, hansard.Redaction{Seqs: []hansard.Seq{2}, Reason: "WHY"}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Fork(t.Context(), parent.ID, hansard.Fork{As: "forked"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []hansard.SessionID{parent.ID, "forked"} {
		for _, format := range []string{"claude", "openai", "anthropic", "cleveragents"} {
			out := export(t, store, id, format)
			if strings.Contains(out, "<b>it</b>") || strings.Contains(out, "WHY") || !strings.Contains(out, "Done.") {
				t.Errorf("%s as %s: %s", id, format, out)
			}
			for line := range strings.Lines(out) {
				if strings.TrimSpace(line) == "null" {
					t.Errorf("%s as %s has a record without content: %s", id, format, out)
				}
			}
		}
		for _, format := range []string{"md", "html"} {
			if out := export(t, store, id, format); !strings.Contains(out, "redacted") || strings.Contains(out, "fix  ") {
				t.Errorf("%s as %s: %s", id, format, out)
			}
		}
	}
}
