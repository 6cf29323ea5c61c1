package importer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"hansard"
	"hansard/transcript"
)

// lines makes the lines of a file; S stands for the session.
func lines(session string, records ...string) string {
	var b strings.Builder
	for _, r := range records {
		b.WriteString(strings.ReplaceAll(r, "SESSION", session) + "\n")
	}
	return b.String()
}

const (
	clU1      = `{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"SESSION","timestamp":"2026-08-01T10:00:00.000Z","cwd":"/w","version":"2.1.240","gitBranch":"main","isSidechain":false,"message":{"role":"user","content":"fix the test"}}`
	clThink   = `{"type":"assistant","uuid":"a1","parentUuid":"u1","sessionId":"SESSION","requestId":"req_1","timestamp":"2026-08-01T10:00:01.000Z","message":{"id":"msg_1","role":"assistant","model":"claude-x","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"}],"stop_reason":null,"usage":{"input_tokens":9,"output_tokens":5,"cache_creation_input_tokens":200,"cache_read_input_tokens":300}}}`
	clCall    = `{"type":"assistant","uuid":"a2","parentUuid":"a1","sessionId":"SESSION","requestId":"req_1","timestamp":"2026-08-01T10:00:02.000Z","message":{"id":"msg_1","role":"assistant","model":"claude-x","content":[{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"go test"}}],"stop_reason":"tool_use","usage":{"input_tokens":9,"output_tokens":631,"cache_creation_input_tokens":200,"cache_read_input_tokens":300}}}`
	clResult  = `{"type":"user","uuid":"u2","parentUuid":"a2","sessionId":"SESSION","timestamp":"2026-08-01T10:00:03.000Z","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"ok","is_error":false}]},"toolUseResult":{"stdout":"ok","stderr":""}}`
	clAnswer  = `{"type":"assistant","uuid":"a3","parentUuid":"u2","sessionId":"SESSION","requestId":"req_2","timestamp":"2026-08-01T10:00:04.000Z","message":{"id":"msg_2","role":"assistant","model":"claude-x","content":[{"type":"text","text":"Done."}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":7}}}`
	clFailed  = `{"type":"assistant","uuid":"a4","parentUuid":"a3","sessionId":"SESSION","requestId":"req_3","timestamp":"2026-08-01T10:01:00.000Z","message":{"id":"msg_3","role":"assistant","model":"claude-x","content":[{"type":"tool_use","id":"toolu_2","name":"Read","input":{"file":"x"}},{"type":"tool_use","id":"toolu_3","name":"Read","input":{"file":"y"}}]}}`
	clError   = `{"type":"user","uuid":"u4","parentUuid":"a4","sessionId":"SESSION","timestamp":"2026-08-01T10:01:01.000Z","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_2","content":"no such file","is_error":true}]}}`
	clImage   = `{"type":"user","uuid":"u5","parentUuid":"u4","sessionId":"SESSION","timestamp":"2026-08-01T10:01:02.000Z","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_3","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]}]}}`
	clBound   = `{"type":"system","subtype":"compact_boundary","uuid":"s1","parentUuid":null,"logicalParentUuid":"u2","sessionId":"SESSION","timestamp":"2026-08-01T10:02:00.000Z","compactMetadata":{"trigger":"auto","preTokens":180000,"postTokens":5700}}`
	clSummary = `{"type":"user","uuid":"u6","parentUuid":"s1","sessionId":"SESSION","isCompactSummary":true,"timestamp":"2026-08-01T10:02:01.000Z","message":{"role":"user","content":"This session is being continued."}}`
	clQueued  = `{"type":"attachment","attachment":{"type":"queued_command","prompt":"and also this"},"sessionId":"SESSION","timestamp":"2026-08-01T10:02:02.000Z"}`
	clAITitle = `{"type":"ai-title","title":"Fixing a test","sessionId":"SESSION"}`
	clCustom  = `{"type":"custom-title","customTitle":"My test","sessionId":"SESSION"}`
	clUnknown = `{"type":"hologram","sessionId":"SESSION","beam":[1, 2.50,  "é\u2028"]}`
)

// clPersisted is a result that is kept in a file.
func clPersisted(path string) string {
	return strings.Replace(strings.Replace(clResult, `"stderr":""`, `"persistedOutputPath":"`+path+`"`, 1), `"u2"`, `"`+fmt.Sprintf("p%d", len(path))+`"`, 1)
}

func clMain(session string) string {
	return lines(session, clU1, clThink, clCall, clResult, clAnswer)
}

var claudeCases = []formatCase{
	{name: "two turns", grows: true, files: files{"-w/11111111-aaaa.jsonl": lines("11111111-aaaa", clU1, clThink, clCall, clResult, clAnswer, clFailed, clError, clImage)},
		sessions: map[hansard.SessionID]wanted{"claude:11111111-aaaa": {
			kinds: "mtcrmcrr", title: "fix the test", calls: 3, usage: transcript.Tokens{Input: 12, Output: 638, CacheRead: 300, CacheWrite: 200},
			labels: map[string]string{"tool": "claude", "cwd": "/w", "branch": "main", "model": "claude-x", "version": "2.1.240", "source": "11111111-aaaa"}}}},
	{name: "compaction, titles, unknown", grows: true, files: files{"-w/2.jsonl": lines("2", clU1, clCall, clAITitle, clBound, clSummary, clCustom, clAITitle, clQueued, clUnknown)},
		sessions: map[hansard.SessionID]wanted{"claude:2": {kinds: "mcissiimx", title: "My test", calls: 1, open: []string{"toolu_1"},
			usage: transcript.Tokens{Input: 9, Output: 631, CacheRead: 300, CacheWrite: 200}}}},
	{name: "sub-agent", grows: true, files: files{
		"-w/3.jsonl":                          lines("3", clU1, clCall, strings.Replace(clResult, `"stderr":""`, `"agentId":"77"`, 1)),
		"-w/3/subagents/agent-77.jsonl":       lines("3", strings.Replace(clU1, `"u1"`, `"x1"`, 1), strings.Replace(clAnswer, `"a3"`, `"x2"`, 1)),
		"-w/3/subagents/agent-77.meta.json":   `{"agentType":"Explore","description":"look"}`,
		"-w/3/tool-results/toolu_1.txt.jsonl": clU1 + "\n",
	}, sessions: map[hansard.SessionID]wanted{
		"claude:3": {kinds: "mcr", title: "fix the test", calls: 1, usage: transcript.Tokens{Input: 9, Output: 631, CacheRead: 300, CacheWrite: 200}},
		"claude:3:agent-77": {kinds: "mml", title: "fix the test", usage: transcript.Tokens{Input: 3, Output: 7},
			labels: map[string]string{"parent": "claude:3", "spawned-by": "toolu_1", "agent": "Explore"}},
	}},
	{name: "outputs in files", grows: true, files: files{
		"-w/10.jsonl":                    lines("10", clU1, clCall, clPersisted("/home/x/.claude/projects/-w/10/tool-results/toolu_1.txt"), clAnswer, clFailed, clPersisted("/etc/10/tool-results/../passwd"), clPersisted("/home/x/.claude/projects/-w/11/tool-results/other.txt"), clPersisted(`C:\\w\\10\\tool-results\\gone.txt`)),
		"-w/10/tool-results/toolu_1.txt": "all of the output",
		"-w/10/passwd":                   "secret",
		"-w/11/tool-results/other.txt":   "another session's",
		"-w/10/tool-results/other.txt":   "of the same name",
		"-w/10/subagents/agent-1.jsonl":  lines("10", strings.Replace(clCall, `"a2"`, `"x1"`, 1), clPersisted("/p/-w/10/tool-results/sub.txt")),
		"-w/10/tool-results/sub.txt":     "of the sub-agent",
	}, sessions: map[hansard.SessionID]wanted{
		"claude:10":         {kinds: "mcramcrrr", title: "fix the test", calls: 3, orphans: 3, open: []string{"toolu_2", "toolu_3"}, usage: transcript.Tokens{Input: 12, Output: 638, CacheRead: 300, CacheWrite: 200}},
		"claude:10:agent-1": {kinds: "cra", calls: 1, usage: transcript.Tokens{Input: 9, Output: 631, CacheRead: 300, CacheWrite: 200}},
	}},
	{name: "sub-agents, told otherwise", grows: true, files: files{
		"-w/3.jsonl": lines("3", clU1, `{"type":"progress","uuid":"g1","sessionId":"SESSION","parentToolUseID":"toolu_8","data":{"type":"agent_progress","agentId":"8"}}`,
			`{"type":"queue-operation","operation":"enqueue","sessionId":"SESSION","content":"{\"tool_use_id\":\"toolu_9\",\"task_id\":\"9\"}"}`),
		"-w/3/subagents/agent-8.jsonl":              lines("3", strings.Replace(clU1, `"u1"`, `"x1"`, 1)),
		"-w/3/subagents/workflows/wf/agent-9.jsonl": lines("3", strings.Replace(clU1, `"u1"`, `"y1"`, 1)),
	}, sessions: map[hansard.SessionID]wanted{
		"claude:3":         {kinds: "mii", title: "fix the test"},
		"claude:3:agent-8": {kinds: "ml", title: "fix the test", labels: map[string]string{"parent": "claude:3", "spawned-by": "toolu_8"}},
		"claude:3:agent-9": {kinds: "ml", title: "fix the test", labels: map[string]string{"parent": "claude:3", "spawned-by": "toolu_9"}},
	}},
	{name: "fork", files: files{
		"-w/4.jsonl": lines("4", clAITitle, clU1, clThink, clCall, clResult, clAnswer),
		"-w/5.jsonl": lines("5", clU1, clThink, clCall, clResult, clFailed, clError, clImage),
		"-w/6.jsonl": lines("6", clU1, clThink, clCall, clResult, clFailed, clError, strings.Replace(clU1, `"u1"`, `"z1"`, 1)),
	}, sessions: map[hansard.SessionID]wanted{
		"claude:4": {kinds: "imtcrm", title: "Fixing a test", calls: 1, usage: transcript.Tokens{Input: 12, Output: 638, CacheRead: 300, CacheWrite: 200}},
		"claude:5": {kinds: "imtcrfcrr", title: "fix the test", calls: 2, copied: 4, fork: hansard.Parent{ID: "claude:4", At: 5},
			labels: map[string]string{"parent": "", "forked-at": "", "forked-record": "u2", "cwd": "/w", "source": "5"}},
		"claude:6": {kinds: "imtcrfcrfm", title: "fix the test", copied: 6, fork: hansard.Parent{ID: "claude:5", At: 8}, labels: map[string]string{"forked-record": "u4", "source": "6"}},
	}},
	{name: "damage", grows: true, files: files{"-w/7.jsonl": lines("7", clU1,
		clThink+clCall,           // fused
		clU1[:100]+clResult,      // torn, then whole
		"\x00\x00\x00"+clAnswer,  // NUL
		clBound[:len(clBound)-1], // torn: what is in it is no record
		clQueued+"\r",
		"\x00\x00\x00\x00",
	) + clSummary},
		sessions: map[hansard.SessionID]wanted{"claude:7": {kinds: "mtcrmm", title: "fix the test", calls: 1, damage: 6,
			usage: transcript.Tokens{Input: 12, Output: 638, CacheRead: 300, CacheWrite: 200}}}},
	{name: "long lines", files: files{"-w/8.jsonl": lines("8", clU1,
		strings.Replace(clResult, `"content":"ok"`, `"content":"`+strings.Repeat("a", 2<<20)+`"`, 1),
		strings.Replace(clAnswer, "Done.", strings.Repeat("b", heldBytes), 1),
		strings.Replace(clBound, "auto", "\xff", 1))},
		sessions: map[hansard.SessionID]wanted{"claude:8": {kinds: "mrxx", title: "fix the test", orphans: 1, damage: 1}}},
	{name: "the same id with other content", grows: true, files: files{"-w/9.jsonl": lines("9", clU1, clAnswer, strings.Replace(clAnswer, "Done.", "Done!", 1), clAnswer)},
		sessions: map[hansard.SessionID]wanted{"claude:9": {kinds: "mmm", title: "fix the test", usage: transcript.Tokens{Input: 3, Output: 7}}}},
}

func TestClaude(t *testing.T) { checkFormat(t, claude{}, claudeCases) }

// TestSummaryCovers: the state says which events a compaction covers.
func TestSummaryCovers(t *testing.T) {
	dir := t.TempDir()
	claudeCases[1].files.write(t, dir)
	store, _ := imported(t, claude{}, dir)
	info, err := store.Stat(context.Background(), "claude:2")
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"summary":{"from":1,"record":"s1","to":3}}`; string(info.State) != want {
		t.Errorf("the state is %s, want %s", info.State, want)
	}
}

// TestClaudeLongPrompt: a file whose first line is longer than what is looked at is found by where
// it is, the file of a sub-agent, too.
func TestClaudeLongPrompt(t *testing.T) {
	long := `{"type":"user","uuid":"u1","sessionId":"4","message":{"role":"user","content":"` + strings.Repeat("x", headBytes) + `"}}`
	dir := t.TempDir()
	files{"projects/-w/4.jsonl": lines("", long), "projects/-w/4/subagents/agent-7.jsonl": lines("", long)}.write(t, dir)
	store, _ := imported(t, claude{}, dir)
	for _, id := range []hansard.SessionID{"claude:4", "claude:4:agent-7"} {
		if _, err := store.Stat(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}
