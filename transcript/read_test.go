package transcript

import (
	"strings"
	"testing"
	"unicode/utf8"

	"hansard"
)

// TestVoice: who speaks is told by the event, else by its data; what only has
// results is a tool's, whoever's name it carries.
func TestVoice(t *testing.T) {
	for _, c := range []struct {
		kind, role, author, data string
		want                     Reading
	}{
		{"message", "user", "ada", `"hi"`, Reading{Role: "user", Author: "ada", Voice: User}},
		{"message", "", "", `{"role":"user","content":"hi","name":"ada"}`, Reading{Role: "user", Author: "ada", Voice: User}},
		{"message", "assistant", "", `{"role":"user","content":"hi"}`, Reading{Role: "assistant", Voice: Agent}},
		{"message", "", "", `{"type":"message","role":"developer","content":"hi"}`, Reading{Role: "developer", Voice: System}},
		{"message", "", "", `"hi"`, Reading{Voice: Agent}},
		{"message", "", "", `{"type":"reasoning","summary":[]}`, Reading{Role: "assistant", Voice: Agent}},
		{"tool_call", "", "", `{"type":"function_call","name":"f","call_id":"c","arguments":"{}"}`, Reading{Role: "assistant", Voice: Agent}},
		{"message", "", "", `{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}`, Reading{Role: "user", Voice: Tool}},
		{"message", "user", "", `{"parts":[{"functionResponse":{"name":"f","response":{"a":1}}}]}`, Reading{Role: "user", Voice: Tool}},
		{"message", "tool", "", `"# not a heading"`, Reading{Role: "tool", Voice: Tool}},
		{"tool_result", "user", "", `"ok"`, Reading{Role: "user", Voice: Tool}},
		{"message", "", "", `{"type":"user","uuid":"u","message":{"role":"user","content":"hi"},"isMeta":true}`, Reading{Role: "user", Voice: User, Aside: true}},
		{"message", "", "", `{"type":"assistant","uuid":"u","message":{"content":"hi"}}`, Reading{Role: "assistant", Voice: Agent}},
		{"message", "", "", `{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>x</environment_context>"}]}}`, Reading{Role: "user", Voice: User, Aside: true}},
		{"message", "", "", `{"id":"m","type":"gemini","content":"hi"}`, Reading{Role: "assistant", Voice: Agent}},
		{"message", "", "", `{"author":"user","content":{"role":"user","parts":[{"text":"hi"}]}}`, Reading{Role: "user", Author: "user", Voice: User}},
		{"message", "", "", `{"author":"planner","content":{"role":"model","parts":[{"text":"hi"}]}}`, Reading{Role: "model", Author: "planner", Voice: Agent}},
	} {
		got := Of(hansard.Event{Kind: c.kind, Role: c.role, Author: c.author, Data: []byte(c.data)})
		if got.Role != c.want.Role || got.Author != c.want.Author || got.Voice != c.want.Voice || got.Aside != c.want.Aside {
			t.Errorf("%s %s %s: role %q, author %q, voice %q, aside %v", c.kind, c.role, c.data, got.Role, got.Author, got.Voice, got.Aside)
		}
		if c.want.Voice == Tool && !all(got.Parts, isResult) {
			t.Errorf("%s: a tool's text is not a result: %s", c.data, brief(got.Parts))
		}
	}
}

// TestPreview: a session is known by its first prompt: the text of a person, not
// what a tool says in the person's name, nor the result of a tool.
func TestPreview(t *testing.T) {
	for data, want := range map[string]string{
		`"  Fix\n\tthe   parser, please "`: "Fix the parser, please",
		`{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://a.example/x.png"}},{"type":"text","text":"What is this?"}]}`: "What is this?",
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}`:                                                         "",
		`"<environment_context><cwd>/w</cwd></environment_context>"`:                                                                                  "",
		`{"type":"user","uuid":"u","isMeta":true,"message":{"role":"user","content":"Caveat"}}`:                                                       "",
		"\"Why is `Parse` **so** *slow*?\"":  "Why is Parse so slow?",
		`{"a":1}`:                            "",
		`""`:                                 "",
		`"` + strings.Repeat("ä", 100) + `"`: strings.Repeat("ä", 60) + "…",
		`"a \u001b[31mred\u001b[0m word"`:    "a red word",
	} {
		if got := Of(hansard.Event{Kind: "message", Role: "user", Data: []byte(data)}).Preview(60); got != want {
			t.Errorf("%s: %q, want %q", data, got, want)
		}
	}
	if got := Of(hansard.Event{Kind: "message", Role: "assistant", Data: []byte(`"hi"`)}).Preview(60); got != "" {
		t.Errorf("an agent's message is a prompt: %q", got)
	}
}

// TestPlainText: what is searched is what people read, without syntax and colours.
func TestPlainText(t *testing.T) {
	for data, want := range map[string]string{
		`[{"type":"thinking","thinking":"hm","signature":"zz"},{"type":"text","text":"hi"},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls -l","timeout":5}}]`: "hm\nhi\nBash\nls -l\n5",
		`[{"type":"tool_result","tool_use_id":"t1","content":"\u001b[1mok\u001b[0m"}]`:                                                                                           "ok",
		`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]`:                                                                                   "",
		`{"odd":[1,"x"]}`: `{"odd": [1, "x"]}`,
		`{"id":"m","role":"assistant","content":"hi","usage":{"input_tokens":1}}`: "hi",
	} {
		if got := Of(hansard.Event{Kind: "message", Data: []byte(data)}).PlainText(); got != want {
			t.Errorf("%s: %q, want %q", data, got, want)
		}
	}
}

// TestLine: a folded part says on one line what it is about.
func TestLine(t *testing.T) {
	for data, want := range map[string]string{
		`[{"type":"tool_use","name":"Bash","input":{"description":"look","command":"go test\n ./..."}}]`:        "go test ./..., description: look",
		`[{"type":"tool_use","name":"read","input":{"path":"a.go"}}]`:                                           "a.go",
		`[{"type":"tool_use","name":"read","input":{"path":"a.go","lines":[1,2]}}]`:                             "path: a.go, lines: [1, 2]",
		`[{"type":"tool_use","name":"now","input":{}}]`:                                                         "",
		`[{"type":"tool_result","content":"one\ntwo"}]`:                                                         "one two",
		`[{"type":"tool_result","content":[{"type":"image","data":"AAAA","mimeType":"image/png","name":"a"}]}]`: "image a image/png",
		`{"odd":1}`: `{"odd":1}`,
	} {
		got := Of(hansard.Event{Kind: "message", Data: []byte(data)})
		if line := got.Parts[0].Line(40); line != want {
			t.Errorf("%s: %q, want %q", data, line, want)
		}
	}
}

// TestClip: what is cut says how much is missing, at the end of a line where there
// is one; a picture is whole or not there; the structure stays.
func TestClip(t *testing.T) {
	line := "0123456789\n"
	long := strings.Repeat(line, 100)
	parts := []Part{
		{Type: Text, Text: "short"},
		{Type: Text, Text: long},
		{Type: Call, Name: "f", Args: []Arg{{Name: "a", Text: long}}, JSON: []byte(`{}`)},
		{Type: Result, Parts: []Part{{Type: Text, Text: strings.Repeat("ä", 500)}}},
		{Type: Image, MediaType: "image/png", URL: "data:image/png;base64," + long},
		{Type: JSON, JSON: []byte(`{"a":"` + strings.Repeat("x", 500) + `"}`)},
		{Type: Text, Text: long},
	}
	got := Clip(parts, 100)
	if len(got) != len(parts) || got[0].Cut != 0 || got[0].Text != "short" {
		t.Fatalf("%+v", got)
	}
	if want := strings.Repeat(line, 9); got[1].Text != want || got[1].Cut != len(long)-len(want) {
		t.Errorf("%q, cut %d", got[1].Text, got[1].Cut)
	}
	if a := got[2].Args[0]; a.Text != strings.Repeat(line, 9) || a.Cut == 0 || parts[2].Args[0].Text != long {
		t.Errorf("the argument is %q", a.Text)
	}
	if p := got[3].Parts[0]; !utf8.ValidString(p.Text) || len(p.Text) != 100 || p.Cut != 900 {
		t.Errorf("%q, cut %d", p.Text, p.Cut)
	}
	if p := got[4]; p.URL != "" || p.Cut != len(parts[4].URL) || p.MediaType != "image/png" {
		t.Errorf("the picture is %+v", p)
	}
	if p := got[5]; !strings.HasPrefix(p.Text, "{\n  \"a\": \"xxx") || p.Cut == 0 || p.JSON != nil {
		t.Errorf("the JSON is %+v", p)
	}
	if total := size(got); total > 400 {
		t.Errorf("all together is %d bytes", total)
	}
	// Names and addresses are bounded, too, and are whole where all is asked for.
	name := strings.Repeat("ä", 1000)
	named := []Part{{Type: Call, ID: name, Name: "x" + name, Args: []Arg{{Name: name}}}, {Type: Image, URL: "https://a.example/" + name}, {Type: Image, URL: "https://a.example/" + name + name}, {Type: Note, Detail: name}}
	short := Clip(named, 100)
	if p := short[0]; len(p.ID) != 300 || len(p.Name) != 299 || !utf8.ValidString(p.Name) || len(p.Args[0].Name) != 300 || p.Cut != 2000-300+2001-299 || p.Args[0].Cut != 1700 {
		t.Errorf("the names are %d, %d and %d bytes, cut %d and %d", len(p.ID), len(p.Name), len(p.Args[0].Name), p.Cut, p.Args[0].Cut)
	}
	if short[1].URL != "" || short[2].URL != "" || short[2].Cut != len(named[2].URL) || len(short[3].Detail) != 300 {
		t.Errorf("the addresses are %d and %d bytes", len(short[1].URL), len(short[2].URL))
	}
	if p := Clip(named, 1<<20); p[0].Name != named[0].Name || p[2].URL != named[2].URL || p[3].Detail != name || p[0].Cut+p[2].Cut+p[3].Cut != 0 {
		t.Error("of names that fit something is missing")
	}
	whole := Clip(parts, 1<<20)
	if whole[1].Cut != 0 || whole[1].Text != long || whole[4].URL != parts[4].URL {
		t.Error("what fits is cut")
	}
}

// TestStripEscapes: what is left is what somebody at the terminal would have read.
func TestStripEscapes(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                                  "plain",
		"\x1b[1;31mred\x1b[0m":                   "red",
		"\x1b[38;5;196mred\x1b[m":                "red",
		"\u009b31mred":                           "red",
		"\x1b]0;title\x07text":                   "text",
		"\x1b]8;;https://a\x1b\\a\x1b]8;;\x1b\\": "a",
		"\x1b]52;c;never ended\nnext":            "\nnext",
		"\x1b(B\x1b=x":                           "x",
		"10%\r50%\r100%\ndone":                   "100%\ndone",
		"a\r\nb\r\n":                             "a\nb\n",
		"N\bNA\bA":                               "NA",
		"ä\bx\n\b\bz":                            "x\nz",
		"end\x1b":                                "end",
		"end\x1b[":                               "end",
		"\x1bMx":                                 "x",
		"tab\tstays":                             "tab\tstays",
		"a\x1bäb":                                "aäb", // half a character would be left
		"\x1b(äb":                                "äb",
	} {
		if got := StripEscapes(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// TestPretty: short values stay on a line, long ones are indented, tokens stay as
// they are.
func TestPretty(t *testing.T) {
	long := strings.Repeat("x", 80)
	for in, want := range map[string]string{
		`{"a":1,"b":[1,2]}`:                 `{"a": 1, "b": [1, 2]}`,
		` [ 1 , 2.50 , 1e999 ] `:            `[1, 2.50, 1e999]`,
		`{"a":"` + long + `","b":[{}]}`:     "{\n  \"a\": \"" + long + "\",\n  \"b\": [{}]\n}",
		`["` + long + `",["` + long + `"]]`: "[\n  \"" + long + "\",\n  [\n    \"" + long + "\"\n  ]\n]",
		`"\u00e4 <&>"`:                      `"\u00e4 <&>"`,
		`{}`:                                `{}`,
		`no json`:                           `no json`,
	} {
		if got := Pretty([]byte(in)); got != want {
			t.Errorf("%s became\n%s\nwant\n%s", in, got, want)
		}
	}
}
