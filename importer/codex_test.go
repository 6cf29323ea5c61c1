package importer

import (
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"hansard"
	"hansard/transcript"
)

const (
	cxMeta    = `{"timestamp":"2026-08-01T18:07:04.550Z","type":"session_meta","payload":{"id":"SESSION","forked_from_id":null,"cwd":"/w","originator":"codex-tui","cli_version":"0.149.0","source":"cli","model_provider":"openai","git":{"branch":"main","commit_hash":"abc"}}}`
	cxContext = `{"timestamp":"2026-08-01T18:07:05.000Z","type":"turn_context","payload":{"turn_id":"t1","cwd":"/w","model":"gpt-5-codex","approval_policy":"on-request"}}`
	cxEnv     = `{"timestamp":"2026-08-01T18:07:05.100Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>…</environment_context>"}]}}`
	cxUser    = `{"timestamp":"2026-08-01T18:07:05.200Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"list the files"}]}}`
	cxSaid    = `{"timestamp":"2026-08-01T18:07:05.300Z","type":"event_msg","payload":{"type":"user_message","message":"list the files","images":null}}`
	cxThink   = `{"timestamp":"2026-08-01T18:07:06.000Z","type":"response_item","payload":{"type":"reasoning","summary":[{"type":"summary_text","text":"look"}],"content":null,"encrypted_content":"gAAAA=="}}`
	cxCall    = `{"timestamp":"2026-08-01T18:07:07.000Z","type":"response_item","payload":{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"ls\"}","call_id":"call_1"}}`
	cxResult  = `{"timestamp":"2026-08-01T18:07:08.000Z","type":"response_item","payload":{"type":"function_call_output","call_id":"call_1","output":[{"type":"input_text","text":"a.go"},{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="}]}}`
	cxPatch   = `{"timestamp":"2026-08-01T18:07:09.000Z","type":"response_item","payload":{"type":"custom_tool_call","name":"apply_patch","input":"*** Begin Patch","call_id":"call_2"}}`
	cxFailed  = `{"timestamp":"2026-08-01T18:07:10.000Z","type":"response_item","payload":{"type":"custom_tool_call_output","call_id":"call_2","output":"error: no such file"}}`
	cxAnswer  = `{"timestamp":"2026-08-01T18:07:11.000Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"There is a.go."}]}}`
	cxTokens  = `{"timestamp":"2026-08-01T18:07:12.000Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":900,"cached_input_tokens":700,"output_tokens":40,"reasoning_output_tokens":12,"total_tokens":940},"last_token_usage":{"input_tokens":900,"cached_input_tokens":700,"output_tokens":40,"reasoning_output_tokens":12,"total_tokens":940},"model_context_window":272000}}}`
	cxDone    = `{"timestamp":"2026-08-01T18:07:13.000Z","type":"event_msg","payload":{"type":"task_complete","turn_id":"t1"}}`
	cxCompact = `{"timestamp":"2026-08-01T18:08:00.000Z","type":"compacted","payload":{"message":"","replacement_history":null,"window_number":2}}`
	cxUnknown = `{"timestamp":"2026-08-01T18:08:01.000Z","type":"tachyon","payload":{"n":1.50}}`
	cxSpawn   = `{"timestamp":"2026-08-01T18:08:02.000Z","type":"response_item","payload":{"type":"function_call","name":"spawn_agent","arguments":"{}","call_id":"call_9"}}`
	cxSpawned = `{"timestamp":"2026-08-01T18:08:03.000Z","type":"response_item","payload":{"type":"function_call_output","call_id":"call_9","output":"{\"agent_id\":\"ch\"}"}}`
	cxTurn2   = `{"timestamp":"2026-08-01T19:00:00.000Z","type":"turn_context","payload":{"turn_id":"t2","cwd":"/w","model":"gpt-5-codex"}}`
	rollout   = "2026/08/01/rollout-2026-08-01T18-07-04-"
)

// later is a record as a fork repeats it: with another time.
func later(record string) string { return strings.Replace(record, "2026-08-01T18", "2026-09-09T09", 1) }

func laters(records ...string) (out []string) {
	for _, r := range records {
		out = append(out, later(r))
	}
	return out
}

var (
	cxFirst  = []string{cxMeta, cxContext, cxEnv, cxUser, cxSaid, cxThink, cxCall, cxResult, cxAnswer, cxTokens, cxDone}
	cxUsed   = transcript.Tokens{Input: 900, Output: 40, CacheRead: 700, Reasoning: 12}
	cxForked = strings.Replace(cxMeta, `"forked_from_id":null`, `"forked_from_id":"par"`, 1)
	cxChild  = strings.Replace(cxMeta, `"source":"cli"`, `"source":{"subagent":{"thread_spawn":{"parent_thread_id":"par","depth":1,"agent_role":"explorer"}}}`, 1)
)

func packed(text string) string {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return string(enc.EncodeAll([]byte(text), nil))
}

func TestCodex(t *testing.T) {
	checkFormat(t, codex{}, []formatCase{
		{name: "two turns", grows: true, files: files{rollout + "th1.jsonl": lines("th1", append(cxFirst, cxTokens, cxTurn2, cxPatch, cxFailed, cxUnknown)...)},
			sessions: map[hansard.SessionID]wanted{"codex:th1": {kinds: "iimmitcrmuiuicrx", title: "list the files", calls: 2, usage: cxUsed,
				labels: map[string]string{"tool": "codex", "cwd": "/w", "branch": "main", "model": "gpt-5-codex", "version": "0.149.0"}}}},
		{name: "compaction", grows: true, files: files{rollout + "th2.jsonl": lines("th2", cxMeta, cxContext, cxUser, cxCall, cxCompact, cxAnswer)},
			sessions: map[hansard.SessionID]wanted{"codex:th2": {kinds: "iimcsm", title: "list the files", calls: 1, open: []string{"call_1"}}}},
		{name: "fork and sub-agent", files: files{
			rollout + "par.jsonl": lines("par", append(cxFirst, cxSpawn, cxSpawned)...),
			rollout + "frk.jsonl": lines("frk", cxForked) + lines("par", laters(cxFirst...)...) + lines("frk", cxTurn2, cxUser, cxTokens),
			rollout + "ch.jsonl":  lines("ch", cxChild) + lines("par", laters(cxFirst[:6]...)...) + lines("ch", cxTurn2, cxAnswer),
		}, sessions: map[hansard.SessionID]wanted{
			"codex:par": {kinds: "iimmitcrmuicr", title: "list the files", calls: 2, usage: cxUsed},
			"codex:frk": {kinds: "iimmitcrmuifiimu", title: "list the files", copied: 11, usage: cxUsed, fork: hansard.Parent{ID: "codex:par", At: 11},
				labels: map[string]string{"parent": "", "forked-at": ""}},
			"codex:ch": {kinds: "iimmitfiiml", title: "list the files", copied: 6, fork: hansard.Parent{ID: "codex:par", At: 6},
				labels: map[string]string{"parent": "codex:par", "forked-at": "", "spawned-by": "call_9", "agent": "explorer"}},
		}},
		{name: "damage", grows: true, files: files{rollout + "th3.jsonl": lines("th3", cxMeta, cxContext+cxUser, cxCall[:60]+cxThink, "\x00\x00", cxAnswer) + cxDone},
			sessions: map[hansard.SessionID]wanted{"codex:th3": {kinds: "iimtm", title: "list the files", damage: 4}}},
	})
}

// TestCodexCompressed: a rollout that was compressed is the same session.
func TestCodexCompressed(t *testing.T) {
	text := lines("th1", append(cxFirst, strings.Replace(cxAnswer, "There", strings.Repeat("x", heldBytes), 1))...)
	dir, dir2 := t.TempDir(), t.TempDir()
	files{rollout + "th1.jsonl": text}.write(t, dir)
	files{rollout + "th1.jsonl.zst": packed(text)}.write(t, dir2)
	plain, _ := imported(t, codex{}, dir)
	store, reports := imported(t, codex{}, dir2)
	if reports[0].Err != nil {
		t.Fatal(reports[0].Err)
	}
	same(t, contents(t, plain), contents(t, store))
	for _, r := range importInto(t, plain, codex{}, dir2) {
		if r.Added != 0 {
			t.Errorf("%d events were added by the compressed file", r.Added)
		}
	}
}
