package browser

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"

	"hansard"
)

// Transcripts as our users' tools write them, one session for each shape: the page has to make
// them readable.

type obj = map[string]any

// testOutput is the output of a test runner: columns, underscores, hashes, colours.
const testOutput = "\x1b[1m=== RUN   TestParse\x1b[0m\n# hansard/parse\n__init__.py   *pkg*   1_000_000\n" +
	"\x1b[31m--- FAIL: TestParse (0.02s)\x1b[0m\n    parse_test.go:31: got 2 lines, want 3\n\x1b[32mPASS\x1b[0m  ok  \thansard/fmt\t0.004s\n\x1b[2mexit status 1\x1b[0m\n"

const someDiff = "diff --git a/parse.go b/parse.go\nindex 3f1c0a2..9b7e411 100644\n--- a/parse.go\n+++ b/parse.go\n@@ -21,9 +21,12 @@ func Parse(r io.Reader) ([]Line, error) {\n \tfor {\n \t\ttext, err := b.ReadString('\\n')\n" +
	"-\t\tif err == io.EOF {\n-\t\t\treturn lines, nil\n-\t\t}\n-\t\tlines = append(lines, Line(text))\n+\t\tif text != \"\" {\n+\t\t\tlines = append(lines, Line(strings.TrimSuffix(text, \"\\n\")))\n+\t\t}\n+\t\tif err != nil {\n+\t\t\treturn lines, ignoreEOF(err)\n+\t\t}\n \t}\n }\n"

// longOutput has n lines in columns.
func longOutput(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%-42s %8d  %-6s  %s\n", fmt.Sprintf("internal/pkg%02d/file_%d.go", i%7, i), i*137%9973, []string{"ok", "FAIL", "skip"}[i%3], "2026-11-16T09:14:07Z")
	}
	return b.String()
}

// chartPNG is a picture in base64.
func chartPNG(width, height int) string {
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			c := color.RGBA{0xfb, 0xfa, 0xf7, 0xff}
			if bar := (x / 40) * 37 % height; x%40 > 8 && y > height-bar-20 {
				c = color.RGBA{0x0b, byte(0x6b + x%60), 0x4f, 0xff}
			}
			img.Set(x, y, c)
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

// raw is an event that has only data, as an importer stores a record.
func raw(kind string, data any) hansard.Event {
	e := says("", "", data)
	e.Kind = kind
	return e
}

// transcripts are the sessions, by id.
func transcripts() map[string][]hansard.Event {
	return map[string][]hansard.Event{
		"claude-code": claudeCode(), "codex": codex(), "gemini-cli": geminiCLI(), "adk": adk(),
		"vercel-ai": vercelAI(), "openai-responses": openAIResponses(), "openai-chat": openAIChat(), "anthropic": anthropic(),
	}
}

func claudeCode() []hansard.Event {
	record := func(typ string, more obj) obj {
		out := obj{"type": typ, "uuid": "8f0c", "parentUuid": "7e1b", "sessionId": "S-1", "timestamp": "2026-08-01T10:00:00.000Z", "cwd": "/home/ada/ledger", "version": "2.1.240", "isSidechain": false, "gitBranch": "main"}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	assistant := func(content ...obj) hansard.Event {
		return raw("message", record("assistant", obj{"requestId": "req_1", "message": obj{"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet", "content": content,
			"stop_reason": "tool_use", "usage": obj{"input_tokens": 9, "output_tokens": 631, "cache_creation_input_tokens": 2048, "cache_read_input_tokens": 48_300}}}))
	}
	back := func(id string, content any, failed bool, structured any) hansard.Event {
		return raw("message", record("user", obj{"message": obj{"role": "user", "content": []obj{{"type": "tool_result", "tool_use_id": id, "content": content, "is_error": failed}}}, "toolUseResult": structured}))
	}
	return []hansard.Event{
		raw("message", record("user", obj{"message": obj{"role": "user", "content": "`Parse` loses the last line when the file does not end with a newline. Please fix it, with a test."}})),
		assistant(obj{"type": "thinking", "thinking": "The reader probably splits at newlines and drops the remainder.\n\nLook at the loop first, then write the test.", "signature": "EqQBCkYI"}),
		assistant(obj{"type": "text", "text": "I'll look at the loop first."}, obj{"type": "tool_use", "id": "toolu_1", "name": "Grep", "input": obj{"pattern": "ReadString", "path": "parse.go", "output_mode": "content", "-n": true}}),
		back("toolu_1", "24:\t\ttext, err := b.ReadString('\\n')", false, obj{"mode": "content", "numLines": 1}),
		assistant(obj{"type": "tool_use", "id": "toolu_2", "name": "Edit", "input": obj{"file_path": "/home/ada/ledger/parse.go", "old_string": "if err == io.EOF {\n\treturn lines, nil\n}", "new_string": "if text != \"\" {\n\tlines = append(lines, Line(text))\n}\nif err != nil {\n\treturn lines, ignoreEOF(err)\n}", "replace_all": false}}),
		back("toolu_2", "The file /home/ada/ledger/parse.go has been updated.", false, nil),
		assistant(obj{"type": "tool_use", "id": "toolu_3", "name": "Bash", "input": obj{"command": "cd /home/ada/ledger && go test ./... 2>&1 | tail -40", "description": "Run the tests", "timeout": 120000}}),
		back("toolu_3", testOutput, true, obj{"stdout": testOutput, "stderr": "", "interrupted": false, "isImage": false}),
		assistant(obj{"type": "text", "text": "One test is still red. The whole list:"}, obj{"type": "tool_use", "id": "toolu_4", "name": "Bash", "input": obj{"command": "git ls-files | xargs wc -l"}}),
		back("toolu_4", longOutput(240), false, nil),
		raw("message", record("system", obj{"subtype": "compact_boundary", "content": "Conversation compacted", "compactMetadata": obj{"trigger": "auto", "preTokens": 180000, "postTokens": 5700}})),
		raw("message", record("user", obj{"isCompactSummary": true, "message": obj{"role": "user", "content": "This session is being continued from a previous one.\n\n1. **Request**: fix `Parse`\n2. **State**: the loop is fixed, one test is red"}})),
		assistant(obj{"type": "tool_use", "id": "toolu_5", "name": "Bash", "input": obj{"command": "git diff"}}),
		back("toolu_5", someDiff, false, nil),
		assistant(obj{"type": "text", "text": "Done. The reader kept only what ended in a newline:\n\n```go\ntext, err := b.ReadString('\\n')\nif text != \"\" { // the rest, at the end of the file\n\tlines = append(lines, Line(text))\n}\n```\n\nAll tests pass."}),
		raw("raw", obj{"type": "file-history-snapshot", "messageId": "m1", "snapshot": obj{"trackedFileBackups": obj{"parse.go": obj{"version": 2}}}}),
	}
}

func codex() []hansard.Event {
	line := func(typ string, payload obj) hansard.Event {
		return raw("message", obj{"timestamp": "2026-08-01T18:07:04.550Z", "type": typ, "payload": payload})
	}
	item := func(payload obj) hansard.Event { return line("response_item", payload) }
	return []hansard.Event{
		line("session_meta", obj{"id": "019f", "cwd": "/home/ada/site", "originator": "codex-tui", "cli_version": "0.149.0", "source": "cli", "git": obj{"branch": "main"}}),
		item(obj{"type": "message", "role": "user", "content": []obj{{"type": "input_text", "text": "<environment_context>\n  <cwd>/home/ada/site</cwd>\n</environment_context>"}}}),
		item(obj{"type": "message", "role": "user", "content": []obj{{"type": "input_text", "text": "The build takes *four minutes*. Where does the time go?"}}}),
		item(obj{"type": "reasoning", "summary": []obj{{"type": "summary_text", "text": "**Measuring the build**\n\nA profile first."}}, "content": nil, "encrypted_content": "gAAAA"}),
		item(obj{"type": "function_call", "name": "exec_command", "arguments": `{"cmd":"npm run build -- --profile","workdir":"/home/ada/site","timeout_ms":300000}`, "call_id": "call_1"}),
		item(obj{"type": "function_call_output", "call_id": "call_1", "output": `{"output":"\u001b[36mvite\u001b[39m v7.1 building…\n\u001b[32m✓\u001b[39m 1843 modules transformed.\nplugin          total\nsvgr           161.2s\ntypescript      48.0s\nminify          22.9s\n","metadata":{"exit_code":0,"duration_seconds":241.3}}`}),
		item(obj{"type": "custom_tool_call", "status": "completed", "name": "apply_patch", "input": "*** Begin Patch\n*** Update File: vite.config.ts\n@@\n-import svgr from \"vite-plugin-svgr\";\n+import svgr from \"./tools/svgr-cached\";\n*** End Patch", "call_id": "call_2"}),
		item(obj{"type": "custom_tool_call_output", "call_id": "call_2", "output": "Exit code: 0\nSuccess. Updated the following files:\nM vite.config.ts"}),
		line("event_msg", obj{"type": "token_count", "info": obj{"last_token_usage": obj{"input_tokens": 21900, "cached_input_tokens": 18700, "output_tokens": 840, "reasoning_output_tokens": 512, "total_tokens": 22740}, "model_context_window": 272000}}),
		item(obj{"type": "message", "role": "assistant", "content": []obj{{"type": "output_text", "text": "Two thirds of it is **svgr**, which reads every icon again. Cached, the build takes *78 s*."}}}),
		line("event_msg", obj{"type": "task_complete", "turn_id": "t1"}),
	}
}

func geminiCLI() []hansard.Event {
	return []hansard.Event{
		raw("message", obj{"id": "m1", "timestamp": "2026-08-01T10:00:00Z", "type": "user", "content": []obj{{"text": "Which of these logs has the first error?"}}}),
		raw("message", obj{"id": "m2", "timestamp": "2026-08-01T10:00:04Z", "type": "gemini", "content": "The first one is in `api-2.log`, at 09:14:07.",
			"thoughts": []obj{{"subject": "Sorting by time", "description": "The names do not tell; the first lines do.", "timestamp": "2026-08-01T10:00:01Z"}},
			"tokens":   obj{"input": 900, "output": 40, "cached": 700, "thoughts": 12, "tool": 0, "total": 952}, "model": "gemini-pro",
			"toolCalls": []obj{{"id": "c1", "name": "run_shell_command", "args": obj{"command": "grep -m1 ERROR *.log", "description": "the first error of each"}, "status": "success", "timestamp": "2026-08-01T10:00:02Z",
				"result": []obj{{"functionResponse": obj{"id": "c1", "name": "run_shell_command", "response": obj{"output": "api-1.log:2026-08-01 09:15:44 ERROR pool_timeout *conn*\napi-2.log:2026-08-01 09:14:07 ERROR __connect__ refused"}}}}}}}),
		raw("message", obj{"id": "m3", "timestamp": "2026-08-01T10:01:00Z", "type": "info", "content": "Request cancelled."}),
	}
}

func adk() []hansard.Event {
	event := func(author string, parts ...obj) hansard.Event {
		role := "model"
		if author == "user" {
			role = "user"
		}
		return raw("message", obj{"id": "e1", "invocation_id": "i1", "author": author, "timestamp": 1754042400.25, "content": obj{"role": role, "parts": parts}, "actions": obj{"state_delta": obj{}, "artifact_delta": obj{}}})
	}
	return []hansard.Event{
		event("user", obj{"text": "Book a table for two on Friday, somewhere quiet."}),
		event("concierge", obj{"text": "A quiet place near the river would do.", "thought": true}, obj{"function_call": obj{"id": "adk-1", "name": "find_tables", "args": obj{"day": "Friday", "people": 2, "quiet": true}}}),
		event("concierge", obj{"function_response": obj{"id": "adk-1", "name": "find_tables", "response": obj{"tables": []obj{{"place": "Ribeira", "time": "19:30"}, {"place": "Casa Azul", "time": "20:00"}}}}}),
		event("concierge", obj{"text": "**Ribeira** has a table at 19:30, **Casa Azul** one at 20:00. Which one?"}),
		event("user", obj{"text": "Ribeira."}, obj{"inline_data": obj{"mime_type": "image/png", "data": chartPNG(320, 120)}}),
		event("concierge", obj{"function_call": obj{"id": "adk-2", "name": "book", "args": obj{"place": "Ribeira", "time": "19:30"}}}),
		event("concierge", obj{"function_response": obj{"id": "adk-2", "name": "book", "response": obj{"error": "the table was taken a minute ago"}}}),
	}
}

func vercelAI() []hansard.Event {
	return []hansard.Event{
		raw("message", obj{"id": "m1", "role": "user", "parts": []obj{{"type": "text", "text": "What is the weather in Lima, and what should I pack?"}, {"type": "file", "mediaType": "image/png", "filename": "suitcase.png", "url": "data:image/png;base64," + chartPNG(240, 100)}}}),
		raw("message", obj{"id": "m2", "role": "assistant", "metadata": obj{"model": "gpt"}, "parts": []obj{
			{"type": "step-start"}, {"type": "reasoning", "text": "I need the forecast first.", "state": "done"},
			{"type": "tool-getWeather", "toolCallId": "c1", "state": "output-available", "input": obj{"city": "Lima", "days": 3}, "output": obj{"days": []obj{{"day": "Fri", "high": 19, "sky": "cloudy"}, {"day": "Sat", "high": 20, "sky": "garúa"}, {"day": "Sun", "high": 18, "sky": "garúa"}}}},
			{"type": "tool-getPackingList", "toolCallId": "c2", "state": "output-error", "input": obj{"climate": "mild"}, "errorText": "429: too many requests"},
			{"type": "step-start"}, {"type": "text", "text": "Mild and grey: **a light jacket**, no umbrella. It is *garúa* season.\n\n| day | high |\n|---|---:|\n| Fri | 19 °C |\n| Sat | 20 °C |", "state": "done"},
			{"type": "source-url", "sourceId": "s1", "url": "https://weather.example/lima", "title": "Lima, three days"},
		}}),
	}
}

func openAIResponses() []hansard.Event {
	return []hansard.Event{
		raw("message", obj{"type": "message", "role": "developer", "content": []obj{{"type": "input_text", "text": "You are an analyst. Answer with figures."}}}),
		raw("message", obj{"type": "message", "role": "user", "content": []obj{{"type": "input_text", "text": "How did the north sell? A chart, please."}, {"type": "input_file", "filename": "sales.csv", "file_data": "data:text/csv;base64,d2VlayxzdW0KMSw0Mgo="}}}),
		raw("reasoning", obj{"type": "reasoning", "id": "rs_1", "summary": []obj{}, "encrypted_content": "gAAAA"}),
		raw("tool_call", obj{"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "import pandas as pd\n\n# one row per week\ndf = pd.read_csv('sales.csv')\nprint(df.describe())", "container_id": "cntr_1", "outputs": []obj{{"type": "logs", "logs": "            week        sum\ncount  12.000000  12.000000\nmean    6.500000  61.250000\nstd     3.605551  17.284271"}}}),
		raw("tool_call", obj{"type": "function_call", "id": "fc_1", "call_id": "call_9", "name": "draw_chart", "arguments": `{"kind":"bars","values":[42,51,48,60,66,71],"title":"North"}`, "status": "completed"}),
		raw("tool_result", obj{"type": "function_call_output", "call_id": "call_9", "output": []obj{{"type": "input_image", "image_url": "data:image/png;base64," + chartPNG(520, 200)}}}),
		raw("tool_call", obj{"type": "web_search_call", "id": "ws_1", "status": "completed", "action": obj{"type": "search", "query": "hotel season north 2026"}}),
		raw("message", obj{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []obj{{"type": "output_text", "text": "### Twelve weeks\n\n- mean: **61 k€**\n- best week: **84 k€**\n\nThe spike is a hotel chain.", "annotations": []obj{{"type": "url_citation", "url": "https://news.example/hotels", "title": "Hotels", "start_index": 60, "end_index": 71}}}}}),
	}
}

func openAIChat() []hansard.Event {
	return []hansard.Event{
		raw("message", obj{"role": "system", "content": "You answer questions about the warehouse."}),
		raw("message", obj{"role": "user", "name": "frances", "content": "How many open orders are older than a week?"}),
		raw("message", obj{"role": "assistant", "content": nil, "tool_calls": []obj{{"id": "call_a", "type": "function", "function": obj{"name": "run_sql", "arguments": `{"sql":"select status, count(*)\n  from orders\n where created < now() - interval '7 days' -- a week\n group by status\n order by 2 desc"}`}}}}),
		raw("message", obj{"role": "tool", "tool_call_id": "call_a", "content": " status  | count\n---------+-------\n open    |    17\n held    |     4\n(2 rows)\n"}),
		raw("message", obj{"role": "assistant", "content": "**17** are open; four more are held.", "refusal": nil}),
		raw("message", obj{"role": "user", "content": []obj{{"type": "text", "text": "And in this picture?"}, {"type": "image_url", "image_url": obj{"url": "https://pictures.example/board.png"}}}}),
	}
}

func anthropic() []hansard.Event {
	return []hansard.Event{
		raw("message", obj{"role": "user", "content": []obj{{"type": "text", "text": "Review this change, please."}, {"type": "text", "text": "```diff\n" + someDiff + "```"}}}),
		raw("message", obj{"role": "assistant", "content": []obj{{"type": "redacted_thinking", "data": "EmwKAh"}, {"type": "text", "text": "> text, err := b.ReadString('\\n')\n\nAn error other than `io.EOF` was lost before; now it is returned. Two remarks:\n\n1. `TrimSuffix` keeps a `\\r`\n2. the name `ignoreEOF` says it well\n\n- [x] tests\n- [ ] changelog"},
			{"type": "tool_use", "id": "t9", "name": "take_screenshot", "input": obj{}}}}),
		raw("message", obj{"role": "user", "content": []obj{{"type": "tool_result", "tool_use_id": "t9", "content": []obj{{"type": "text", "text": "1280 × 800"}, {"type": "image", "source": obj{"type": "base64", "media_type": "image/png", "data": chartPNG(480, 160)}}}}}}),
		raw("message", obj{"role": "user", "content": []obj{{"type": "document", "title": "spec.pdf", "source": obj{"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}, {"type": "text", "text": "The spec is attached."}}}),
	}
}

// addTranscripts fills a store with all of them.
func addTranscripts(t testing.TB, s hansard.Store) {
	t.Helper()
	for id, events := range transcripts() {
		for _, e := range events {
			append1(t, s, id, e)
		}
	}
	// A session with the store's own records, with everything the page marks.
	if _, err := s.Create(t.Context(), "store", hansard.Meta{Title: "What the store itself writes", Labels: map[string]string{"team": "tools", "stage": "review"}, State: json.RawMessage(`{"step":3}`)}); err != nil {
		t.Fatal(err)
	}
	append1(t, s, "store", says("user", "ada", "Shall we?"))
	turn, err := s.Acquire(t.Context(), "store", hansard.Claim{Label: "planner", Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	title := "What the store writes"
	if _, err := s.Append(t.Context(), "store", hansard.Batch{Turn: turn.Grant, Patch: &hansard.Patch{Title: &title, Labels: map[string]*string{"stage": nil}}}); err != nil {
		t.Fatal(err)
	}
	note := says("user", "omar", "For the holder, when there is time.")
	note.Inbox = true
	append1(t, s, "store", note)
	if _, err := s.Append(t.Context(), "store", hansard.Batch{Turn: turn.Grant, Events: []hansard.Event{raw("summary", obj{"from": 1, "to": 4, "text": "ada asked, **planner** is at it."})}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), "store", hansard.Claim{Label: "dana", Steal: "it goes round in circles"}); err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{`{"type":"message","role":"user","content":"a secret that was deleted"}`, `{"seq":7,"id":"item_7"}`} {
		e := hansard.Event{Kind: "message", Role: "user", Author: "ada", Data: []byte(data)}
		if strings.HasPrefix(data, `{"seq"`) {
			e = hansard.Event{Kind: "item_deleted", Data: []byte(data)}
		}
		append1(t, s, "store", e)
	}
}
