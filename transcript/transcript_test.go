package transcript

import (
	"fmt"
	"strings"
	"testing"

	"hansard"
)

// brief writes parts so that a test can compare them.
func brief(parts []Part) string {
	var out []string
	for _, p := range parts {
		switch p.Type {
		case Call:
			out = append(out, strings.TrimSpace(fmt.Sprintf("call %s %s %s", p.ID, p.Name, p.JSON)))
		case Result:
			failed := ""
			if p.Failed {
				failed = " failed"
			}
			out = append(out, fmt.Sprintf("result %s %s%s: %s", p.ID, p.Name, failed, brief(p.Parts)))
		case Image, File:
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", p.Type, p.URL, p.Name)))
		case Summary:
			out = append(out, fmt.Sprintf("summary %d-%d %s", p.First, p.Last, p.Text))
		case Usage:
			out = append(out, fmt.Sprintf("usage %+v", *p.Tokens))
		case JSON:
			out = append(out, strings.TrimSpace(fmt.Sprintf("json %s %s", p.Label, p.JSON)))
		case Deletion:
			out = append(out, fmt.Sprintf("deletion %d", p.Seq))
		default:
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", p.Type, p.Name, p.Text)))
		}
	}
	return strings.Join(out, "; ")
}

const png = "data:image/png;base64,AAAA"

// shapes are events as people's tools write them, and what is to be read in them.
var shapes = []struct{ name, kind, data, parts string }{
	// The session files of other tools.
	{"copilot user", "message", `{"type":"user.message","data":{"content":"typed","transformedContent":"as sent"},"id":"e2","timestamp":"2026-08-01T10:00:01Z","parentId":"e1"}`, "text  typed"},
	{"copilot answer", "tool_call", `{"type":"assistant.message","data":{"content":"","reasoningText":"hm","toolRequests":[{"toolCallId":"c1","name":"bash","arguments":{"command":"ls"}}],"outputTokens":40},"id":"e3","parentId":"e2"}`, `thinking  hm; call c1 bash {"command":"ls"}`},
	{"copilot result", "tool_result", `{"type":"tool.execution_complete","data":{"toolCallId":"c1","success":false,"result":{"content":"a.go"}},"id":"e4","parentId":"e3"}`, "result c1  failed: text  a.go"},
	{"copilot compaction", "summary", `{"type":"session.compaction_complete","data":{"summary":"so far"},"id":"e6"}`, "summary 0-0 so far"},
	{"pi user", "message", `{"type":"message","id":"1","parentId":null,"timestamp":"2026-08-01T10:00:01Z","message":{"role":"user","content":[{"type":"text","text":"do it"}]}}`, "text  do it"},
	{"pi answer", "tool_call", `{"type":"message","id":"2","parentId":"1","timestamp":"2026-08-01T10:00:02Z","message":{"role":"assistant","model":"m-1","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"s"},{"type":"toolCall","id":"c1","name":"bash","arguments":{"command":"ls"}}],"usage":{"input":5,"output":6},"stopReason":"toolUse"}}`,
		`thinking  hm; call c1 bash {"command":"ls"}; usage {Input:5 Output:6 CacheRead:0 CacheWrite:0 Reasoning:0 Total:0 Model:m-1}`},
	{"pi result", "tool_result", `{"type":"message","id":"3","parentId":"2","timestamp":"2026-08-01T10:00:03Z","message":{"role":"toolResult","toolCallId":"c1","toolName":"bash","isError":true,"content":[{"type":"text","text":"no"}]}}`, "result c1 bash failed: text  no"},
	{"opencode tool", "tool_call", `{"type":"tool","callID":"c1","tool":"bash","state":{"status":"completed","input":{"command":"ls"},"output":"a.go","time":{"start":1,"end":2}}}`, `call c1 bash {"command":"ls"}; result c1 bash: text  a.go`},
	{"opencode error", "tool_call", `{"type":"tool","callID":"c1","tool":"bash","state":{"status":"error","input":{},"error":"no"}}`, `call c1 bash {}; result c1 bash failed: text  no`},
	{"opencode running", "tool_call", `{"type":"tool","callID":"c1","tool":"bash","state":{"status":"running","input":{}}}`, `call c1 bash {}`},
	{"trajectory", "message", `{"ts":1770000002000,"type":"decision","content":"do","raw":{"question":"?"}}`, `text  do; json more {"raw":{"question":"?"}}`},
	{"trajectory thinking", "reasoning", `{"ts":1770000001000,"type":"thinking","content":"hm"}`, "thinking  hm"},
	// Text, as anybody would write it.
	{"a string", "message", `"hi"`, "text  hi"},
	{"a text", "message", `{"text":"hi"}`, "text  hi"},
	{"content", "message", `{"role":"user","content":"hi"}`, "text  hi"},
	{"more", "message", `{"content":"hi","score":3}`, `text  hi; json more {"score":3}`},
	{"odd content", "message", `{"content":{"odd":1}}`, `json  {"content":{"odd":1}}`},
	{"a name twice", "message", `{"content":"hi","content":"ho"}`, `json  {"content":"hi","content":"ho"}`},
	{"strings", "message", `["a","b"]`, `json  ["a","b"]`},
	{"null", "message", `null`, `json  null`},
	{"empty", "message", `[]`, `json  []`},
	{"a number", "message", `12`, `json  12`},
	{"a kind of one's own", "note", `{"a":1}`, `json  {"a":1}`},
	{"a change of metadata", "meta", `null`, ""},
	{"a lost event", "lost", `null`, "note  This event was lost; a repair put this in its place"},
	{"a kind that is called so", "lost", `{"a":1}`, `json  {"a":1}`},

	// OpenAI Chat.
	{"chat picture", "message", `{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"` + png + `","detail":"low"}}]}`, "text  look; image " + png},
	{"chat call", "message", `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}`, `call c1 f {"a":1}`},
	{"chat calls with text", "message", `{"role":"assistant","content":"I look","refusal":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"not json"}}]}`, `text  I look; call c1 f {}; call c2 g "not json"`},
	{"chat result", "message", `{"role":"tool","tool_call_id":"c1","content":"ok"}`, "result c1 : text  ok"},
	{"chat result in parts", "message", `{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"ok"}]}`, "result c1 : text  ok"},
	{"chat legacy call", "message", `{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"a\":1}"}}`, `call  f {"a":1}`},
	{"chat reasoning", "message", `{"role":"assistant","content":"yes","reasoning_content":"hm"}`, "thinking  hm; text  yes"},
	{"chat refusal", "message", `{"role":"assistant","content":null,"refusal":"I can't"}`, `json  {"role":"assistant","content":null,"refusal":"I can't"}`},
	{"chat completion", "message", `{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":4}}}`, "text  hi; usage {Input:9 Output:5 CacheRead:4 CacheWrite:0 Reasoning:0 Total:14 Model:m}"},
	{"chat audio", "message", `{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"QQ==","format":"wav"}}]}`, "file data:audio/wav;base64,QQ== audio"},
	{"chat file", "message", `{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,QQ=="}}]}`, "file data:application/pdf;base64,QQ== a.pdf"},

	// OpenAI Responses.
	{"input", "message", `[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"` + png + `"}]`, "text  a; image " + png},
	{"message", "message", `{"type":"message","role":"assistant","id":"msg_1","status":"completed","content":[{"type":"output_text","text":"hi","annotations":[]}]}`, "text  hi"},
	{"refusal", "message", `{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`, "text  no"},
	{"reasoning", "message", `{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"why"},{"type":"summary_text","text":"how"}],"encrypted_content":"gAAA"}`, "thinking  why\n\nhow"},
	{"function call", "tool_call", `{"type":"function_call","call_id":"c1","name":"f","arguments":"not json"}`, `call c1 f "not json"`},
	{"function output", "tool_result", `{"type":"function_call_output","call_id":"c1","output":"{\"n\":2}"}`, `result c1 : text  {"n":2}`},
	{"output in parts", "tool_result", `{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"ok"},{"type":"input_image","image_url":"` + png + `"}]}`, `result c1 : text  ok; image ` + png},
	{"custom tool", "tool_call", `{"type":"custom_tool_call","call_id":"c2","name":"apply_patch","input":"*** Begin Patch"}`, `call c2 apply_patch "*** Begin Patch"`},
	{"web search", "message", `{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"go"}}`, `call ws_1 web_search {"type":"search","query":"go"}`},
	{"mcp call", "message", `{"type":"mcp_call","id":"m1","name":"f","server_label":"s","arguments":"{\"a\":1}","output":"ok"}`, `call m1 f {"a":1}; result m1 f: text  ok`},
	{"code interpreter", "message", `{"type":"code_interpreter_call","id":"ci","code":"print(1)","outputs":[{"type":"logs","logs":"1"}]}`, `call ci code_interpreter "print(1)"; result ci code_interpreter: text  1`},
	{"image generation", "message", `{"type":"image_generation_call","id":"ig","status":"completed","revised_prompt":"a cat","result":"AAAA"}`, `call ig image_generation; result ig image_generation: image ` + png},
	{"response", "message", `{"id":"r","object":"response","created_at":1,"status":"completed","model":"m","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}],"usage":{"input_tokens":9,"output_tokens":5,"output_tokens_details":{"reasoning_tokens":3}}}`, "text  hi; usage {Input:9 Output:5 CacheRead:0 CacheWrite:0 Reasoning:3 Total:0 Model:m}"},
	{"what the API learns next", "message", `{"type":"dream","id":"d","plot":"x"}`, `json dream {"type":"dream","id":"d","plot":"x"}`},

	// Anthropic.
	{"pictures", "message", `[{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"AAAA"}},{"type":"image","source":{"type":"url","url":"https://a.example/b.png"}}]`, "image data:image/jpeg;base64,AAAA; image https://a.example/b.png"},
	{"thinking and call", "message", `[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"redacted_thinking","data":"zz"},{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}]`, `thinking  hm; thinking; call t1 f {"a":1}`},
	{"failed result", "message", `[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"ok"}],"is_error":true}]`, "result t1  failed: text  ok"},
	{"picture in a result", "message", `[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}]`, "result t1 : image " + png},
	{"whole message", "message", `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":5,"cache_read_input_tokens":300,"cache_creation_input_tokens":200,"service_tier":"standard"}}`, "text  hi; usage {Input:9 Output:5 CacheRead:300 CacheWrite:200 Reasoning:0 Total:0 Model:m}"},
	{"document", "message", `[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"QQ=="},"title":"a.pdf"}]`, "file data:application/pdf;base64,QQ== a.pdf"},
	{"server tool", "message", `[{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query":"go"}},{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"type":"web_search_result","url":"https://go.dev","title":"Go"}]}]`, `call s1 web_search {"query":"go"}; result s1 : json web_search_result {"type":"web_search_result","url":"https://go.dev","title":"Go"}`},

	// MCP.
	{"mcp picture", "message", `{"type":"image","data":"AAAA","mimeType":"image/webp"}`, "image data:image/webp;base64,AAAA"},
	{"mcp result", "tool_result", `{"id":"c1","result":{"content":[{"type":"text","text":"ok"}],"isError":true}}`, "result c1  failed: text  ok"},

	// Gemini and ADK.
	{"gemini content", "message", `{"role":"model","parts":[{"text":"hm","thought":true},{"text":"hi","thoughtSignature":"x"},{"functionCall":{"id":"c1","name":"f","args":{"a":1}}}]}`, `thinking  hm; text  hi; call c1 f {"a":1}`},
	{"gemini response", "message", `{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"f","response":{"output":"ok"}}},{"functionResponse":{"name":"g","response":{"error":"no"}}},{"functionResponse":{"name":"h","response":{"n":1,"m":2}}}]}`, `result c1 f: text  ok; result  g failed: text  no; result  h: json  {"n":1,"m":2}`},
	{"gemini data", "message", `{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"inlineData":{"mimeType":"application/pdf","data":"QQ==","displayName":"a.pdf"}},{"fileData":{"mimeType":"video/mp4","fileUri":"gs://b/c"}}]}`, "image " + png + "; file data:application/pdf;base64,QQ== a.pdf; file gs://b/c"},
	{"gemini code", "message", `{"parts":[{"executableCode":{"language":"PYTHON","code":"print(1)"}},{"codeExecutionResult":{"outcome":"OUTCOME_FAILED","output":"1"}}]}`, `call  code_execution "print(1)"; result  code_execution failed: text  1`},
	{"adk event", "message", `{"id":"e","invocation_id":"i","author":"planner","timestamp":1.5,"content":{"role":"model","parts":[{"text":"hi"},{"function_call":{"id":"c1","name":"f","args":{}}}]},"actions":{"state_delta":{"k":1},"artifact_delta":{}},"usage_metadata":{"prompt_token_count":9,"candidates_token_count":5,"total_token_count":14}}`, `text  hi; call c1 f {}; usage {Input:9 Output:5 CacheRead:0 CacheWrite:0 Reasoning:0 Total:14 Model:}; json more {"actions":{"state_delta":{"k":1}}}`},
	{"gemini answer", "message", `{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":5,"totalTokenCount":14},"modelVersion":"g"}`, "text  hi; usage {Input:9 Output:5 CacheRead:0 CacheWrite:0 Reasoning:0 Total:14 Model:}"},
	{"gemini cli user", "message", `{"id":"m1","timestamp":"t","type":"user","content":[{"text":"hi"}]}`, "text  hi"},
	{"gemini cli", "message", `{"id":"m2","timestamp":"t","type":"gemini","content":"done","thoughts":[{"subject":"Plan","description":"look first","timestamp":"t"}],"tokens":{"input":900,"output":40,"cached":700,"thoughts":12,"tool":0,"total":952},"model":"g","toolCalls":[{"id":"c1","name":"run_shell_command","args":{"command":"ls"},"status":"success","timestamp":"t","resultDisplay":"a b","result":[{"functionResponse":{"id":"c1","name":"run_shell_command","response":{"output":"a b"}}}]}]}`, `thinking  **Plan** look first; text  done; call c1 run_shell_command {"command":"ls"}; result c1 run_shell_command: text  a b; usage {Input:900 Output:40 CacheRead:700 CacheWrite:0 Reasoning:12 Total:952 Model:g}`},
	{"qwen", "message", `{"uuid":"u","parentUuid":null,"sessionId":"s","timestamp":"t","type":"assistant","cwd":"/w","version":"1","gitBranch":"main","message":{"role":"model","parts":[{"text":"hi"}]},"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":5},"model":"q"}`, "text  hi; usage {Input:9 Output:5 CacheRead:0 CacheWrite:0 Reasoning:0 Total:0 Model:}"},

	// Vercel AI.
	{"ui message", "message", `{"id":"m","role":"assistant","parts":[{"type":"step-start"},{"type":"reasoning","text":"hm","state":"done"},{"type":"text","text":"hi","state":"done"},{"type":"tool-getWeather","toolCallId":"c1","state":"output-available","input":{"city":"Lima"},"output":{"t":20}}]}`, `thinking  hm; text  hi; call c1 getWeather {"city":"Lima"}; result c1 getWeather: json  {"t":20}`},
	{"tool under way", "message", `{"role":"assistant","parts":[{"type":"tool-f","toolCallId":"c1","state":"input-available","input":{"a":1}}]}`, `call c1 f {"a":1}`},
	{"tool error", "message", `{"role":"assistant","parts":[{"type":"tool-f","toolCallId":"c1","state":"output-error","input":{},"errorText":"no"}]}`, `call c1 f {}; result c1 f failed: text  no`},
	{"dynamic tool", "message", `{"role":"assistant","parts":[{"type":"dynamic-tool","toolName":"g","toolCallId":"c1","state":"output-available","input":{},"output":"ok"}]}`, `call c1 g {}; result c1 g: text  ok`},
	{"tool invocation", "message", `{"role":"assistant","content":"","parts":[{"type":"tool-invocation","toolInvocation":{"state":"result","toolCallId":"c1","toolName":"f","args":{"a":1},"result":"ok"}}]}`, `call c1 f {"a":1}; result c1 f: text  ok`},
	{"ui message of version 4", "message", `{"id":"m","role":"user","content":"hi","parts":[{"type":"text","text":"hi"}]}`, `text  hi`},
	{"content beside parts", "message", `{"role":"user","content":"ho","parts":[{"type":"text","text":"hi"}]}`, `text  hi; json more {"content":"ho"}`},
	{"file part", "message", `{"role":"user","parts":[{"type":"file","mediaType":"image/png","url":"` + png + `","filename":"a.png"},{"type":"file","mediaType":"text/csv","url":"https://a.example/b.csv"}]}`, "image " + png + " a.png; file https://a.example/b.csv"},
	{"source", "message", `{"role":"assistant","parts":[{"type":"source-url","sourceId":"1","url":"https://a.example"}]}`, `json source-url {"type":"source-url","sourceId":"1","url":"https://a.example"}`},
	{"model message", "message", `{"role":"assistant","content":[{"type":"text","text":"hi"},{"type":"tool-call","toolCallId":"c1","toolName":"f","input":{"a":1}}]}`, `text  hi; call c1 f {"a":1}`},
	{"tool message", "message", `{"role":"tool","content":[{"type":"tool-result","toolCallId":"c1","toolName":"f","output":{"type":"text","value":"ok"}},{"type":"tool-result","toolCallId":"c2","toolName":"g","output":{"type":"error-text","value":"no"}},{"type":"tool-result","toolCallId":"c3","toolName":"h","output":{"type":"json","value":{"n":1}}}]}`, `result c1 f: text  ok; result c2 g failed: text  no; result c3 h: json  {"n":1}`},

	// Claude Code.
	{"claude user", "message", `{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"S","timestamp":"t","cwd":"/w","version":"2.1.240","isSidechain":false,"message":{"role":"user","content":"fix the test"}}`, "text  fix the test"},
	{"claude assistant", "message", `{"type":"assistant","uuid":"a1","parentUuid":"u1","requestId":"req_1","message":{"id":"msg_1","role":"assistant","model":"m","content":[{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"go test"}}],"stop_reason":"tool_use","usage":{"output_tokens":631}}}`, `call toolu_1 Bash {"command":"go test"}; usage {Input:0 Output:631 CacheRead:0 CacheWrite:0 Reasoning:0 Total:0 Model:m}`},
	{"claude result", "tool_result", `{"type":"user","uuid":"u2","parentUuid":"a2","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"ok","is_error":false}]},"toolUseResult":{"stdout":"ok","stderr":"","interrupted":false}}`, "result toolu_1 : text  ok"},
	{"claude structured result", "message", `{"type":"user","uuid":"u2","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"ok"}]},"toolUseResult":{"agentId":"a7"}}`, `result toolu_1 : text  ok; json toolUseResult {"agentId":"a7"}`},
	{"claude compaction", "message", `{"type":"system","subtype":"compact_boundary","uuid":"s1","parentUuid":null,"logicalParentUuid":"u2","compactMetadata":{"trigger":"auto","preTokens":180000,"postTokens":5700}}`, "summary 0-0 The conversation was compacted (auto): 180000 tokens before, 5700 after."},
	{"claude summary", "message", `{"type":"user","uuid":"u3","parentUuid":"s1","isCompactSummary":true,"message":{"role":"user","content":"This session is being continued"}}`, "summary 0-0 This session is being continued"},
	{"claude title", "meta", `{"type":"summary","summary":"Fix the parser","leafUuid":"u9"}`, "summary 0-0 Fix the parser"},
	{"claude queued", "message", `{"type":"attachment","attachment":{"type":"queued_command","prompt":"and also"},"timestamp":"t","uuid":"x"}`, "text  and also"},
	{"claude other", "raw", `{"type":"file-history-snapshot","messageId":"m","snapshot":{"a":1}}`, `json file-history-snapshot {"type":"file-history-snapshot","messageId":"m","snapshot":{"a":1}}`},

	// Codex.
	{"codex user", "message", `{"timestamp":"t","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"fix it"}]}}`, "text  fix it"},
	{"codex reasoning", "message", `{"timestamp":"t","type":"response_item","payload":{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"content":null,"encrypted_content":"x"}}`, "thinking  hm"},
	{"codex call", "tool_call", `{"timestamp":"t","type":"response_item","payload":{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"ls\"}","call_id":"call_1"}}`, `call call_1 exec_command {"cmd":"ls"}`},
	{"codex output", "tool_result", `{"timestamp":"t","type":"response_item","payload":{"type":"function_call_output","call_id":"call_1","output":"{\"output\":\"a b\\n\",\"metadata\":{\"exit_code\":1,\"duration_seconds\":0.1}}"}}`, `result call_1  failed: text  a b; json metadata {"metadata":{"exit_code":1,"duration_seconds":0.1}}`},
	{"codex patch", "tool_call", `{"timestamp":"t","type":"response_item","payload":{"type":"custom_tool_call","status":"completed","name":"apply_patch","input":"*** Begin Patch","call_id":"call_2"}}`, `call call_2 apply_patch "*** Begin Patch"`},
	{"codex shell", "tool_call", `{"type":"response_item","payload":{"type":"local_shell_call","call_id":"l1","status":"completed","action":{"type":"exec","command":["ls","-l"]}}}`, `call l1 local_shell {"type":"exec","command":["ls","-l"]}`},
	{"codex tokens", "usage", `{"timestamp":"t","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":1},"last_token_usage":{"input_tokens":900,"cached_input_tokens":700,"output_tokens":40,"reasoning_output_tokens":12,"total_tokens":940},"model_context_window":272000}}}`, "usage {Input:900 Output:40 CacheRead:700 CacheWrite:0 Reasoning:12 Total:940 Model:}"},
	{"codex event", "meta", `{"timestamp":"t","type":"event_msg","payload":{"type":"user_message","message":"fix it"}}`, `json event_msg user_message {"type":"user_message","message":"fix it"}`},
	{"codex compacted", "summary", `{"timestamp":"t","type":"compacted","payload":{"message":"so far","replacement_history":[{"a":1}]}}`, `summary 0-0 so far; json more {"replacement_history":[{"a":1}]}`},
	{"codex meta", "meta", `{"timestamp":"t","type":"session_meta","payload":{"id":"x","cwd":"/w"}}`, `json session_meta {"id":"x","cwd":"/w"}`},

	// Kinds, in shapes that nobody wrote down.
	{"own call", "tool_call", `{"name":"search","q":"Paris"}`, `call  search {"q":"Paris"}`},
	{"own call with args", "tool_call", `{"tool":"search","args":{"q":"Paris"},"id":7}`, `call 7 search {"q":"Paris"}`},
	{"own call with more", "tool_call", `{"tool":"search","args":{"q":"Paris"},"why":"x"}`, `call  search {"q":"Paris"}; json more {"why":"x"}`},
	{"no call", "tool_call", `["f"]`, `json  ["f"]`},
	{"own error", "tool_result", `{"id":"c1","error":"no such file"}`, "result c1  failed: text  no such file"},
	{"own result", "tool_result", `"done"`, "result  : text  done"},
	{"own list", "tool_result", `[1,2]`, "result  : json  [1,2]"},
	{"own results", "tool_result", `[{"id":"a","output":"x"},{"id":"b","output":"y"}]`, "result a : text  x; result b : text  y"},
	{"own object", "tool_result", `{"id":"c1","rows":3}`, `result c1 : json  {"rows":3}`},
	{"summary", "summary", `{"from":1,"to":9,"text":"all"}`, "summary 1-9 all"},
	{"summary of a range", "summary", `{"covers":[3,7],"summary":"all","model":"m"}`, `summary 3-7 all; json more {"model":"m"}`},
	{"summary text", "summary", `"all"`, "summary 0-0 all"},
	{"summary in blocks", "summary", `[{"type":"text","text":"all"}]`, "summary 0-0 all"},
	{"usage", "usage", `{"input_tokens":1,"output_tokens":2,"cost":0.1}`, `usage {Input:1 Output:2 CacheRead:0 CacheWrite:0 Reasoning:0 Total:0 Model:}; json usage {"cost":0.1}`},
	{"deletion", "item_deleted", `{"seq":3,"id":"item_3"}`, "deletion 3"},
	{"no deletion", "item_deleted", `{"seq":3,"text":"x"}`, `text  x; json more {"seq":3}`},
	{"turn", "turn", `{"change":"granted","holder":{"label":"planner","pid":7},"exclusive":true}`, "note planner took the turn exclusively"},
	{"turn taken", "turn", `{"change":"taken","holder":{"pid":7},"why":"dead"}`, "note pid 7 took the turn over: its holder was gone"},
	{"turn stolen", "turn", `{"change":"stolen","holder":{"label":"dana"},"reason":"it loops"}`, "note dana took the turn away from a live holder: “it loops”"},
	{"turn released", "turn", `{"change":"released"}`, "note  The turn was released"},
	{"turn of a newer store", "turn", `{"change":"lent"}`, `json  {"change":"lent"}`},
}

// TestShapes: the parts that people want to read are found in the common shapes of
// data, and the rest stays JSON.
func TestShapes(t *testing.T) {
	for _, c := range shapes {
		got := Of(hansard.Event{Kind: c.kind, Data: []byte(c.data)})
		if s := brief(got.Parts); s != c.parts {
			t.Errorf("%s: %s %s\n became %s\n    want %s", c.name, c.kind, c.data, s, c.parts)
		}
	}
}
