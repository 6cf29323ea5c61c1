package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hansard"
)

// TestWrap: lines break at words, keep the indentation of lists and code, and never lose a
// character; text in columns breaks where the row is full.
func TestWrap(t *testing.T) {
	for _, c := range []struct {
		wrap  wrapper
		line  string
		width int
		rows  []string
	}{
		{wordWrap, "one two three", 20, []string{"one two three"}},
		{wordWrap, "one two three", 9, []string{"one two", "three"}},
		{wordWrap, "one two three", 7, []string{"one two", "three"}},
		{wordWrap, "one two three", 0, []string{"one two three"}},
		{wordWrap, "- one two three", 10, []string{"- one two", "  three"}},
		{wordWrap, "12. one two three", 12, []string{"12. one two", "    three"}},
		{wordWrap, "    code that is long", 14, []string{"    code that", "    is long"}},
		{wordWrap, "averyverylongword", 5, []string{"avery", "veryl", "ongwo", "rd"}},
		{wordWrap, "a averyverylongword", 6, []string{"a", "averyv", "erylon", "gword"}},
		{wordWrap, "日本語の題名です", 6, []string{"日本語", "の題名", "です"}},
		{wordWrap, "", 10, []string{""}},
		{wordWrap, "          deep deep deep", 12, []string{"          de", "ep deep deep"}},
		{hardWrap, "a  b  c  d  e", 5, []string{"a  b ", " c  d", "  e"}},
		{hardWrap, "a\tb", 20, []string{"a       b"}},
		{hardWrap, "a\tb", 0, []string{"a\tb"}},
		{noWrap, "one two three", 3, []string{"one two three"}},
	} {
		if rows := c.wrap(c.line, c.width); !slices.Equal(rows, c.rows) {
			t.Errorf("%q in %d: %q, want %q", c.line, c.width, rows, c.rows)
		}
	}
}

// printed prints events as on a terminal of this many columns; 0 is a pipe.
func printed(t *testing.T, width int, set func(*printer), events ...hansard.Event) string {
	t.Helper()
	var buf bytes.Buffer
	out := newOutput(&buf)
	out.tty, out.colour, out.width = width > 0, width > 0, width
	now := time.Date(2024, 6, 15, 12, 0, 0, 0, time.Local)
	p := newPrinter(out, func() time.Time { return now })
	if set != nil {
		set(p)
	}
	for i, e := range events {
		e.Seq, e.Time = hansard.Seq(i+1), now
		if err := p.print(e); err != nil {
			t.Fatal(err)
		}
	}
	out.Flush()
	return buf.String()
}

// TestPrinter: on a terminal long results are folded, names are coloured by speaker, and lines
// wrapped; a pipe gets everything, plain.
func TestPrinter(t *testing.T) {
	long := strings.Repeat(`line\n`, 30)
	events := []hansard.Event{
		{Kind: "message", Role: "user", Data: []byte(`"Please look at all of this and tell me what you think of it"`)},
		{Kind: "message", Role: "assistant", Data: []byte(`[{"type":"thinking","thinking":"a\nb\nc\nd"},{"type":"tool_use","id":"c","name":"Bash","input":{"command":"cat a\ncat b","timeout":5}}]`)},
		{Kind: "tool_result", Role: "tool", Data: []byte(`{"id":"c","output":"` + long + `"}`)},
		{Kind: "tool_result", Role: "tool", Data: []byte(`{"id":"c","error":"it \u001b[31mbroke\u001b[0m"}`)},
		{Kind: "tool_result", Role: "tool", Data: []byte(`{"id":"c","output":"` + strings.Repeat("0123456789", 320) + `"}`)}, // one line, a hundred rows
	}
	terminal := printed(t, 40, nil, events...)
	for _, want := range []string{
		"\x1b[1;36muser\x1b[0m\n", "\x1b[1;32massistant\x1b[0m\n", "\x1b[33mtool_result tool\x1b[0m\n",
		"      Please look at all of this and\n      tell me what you think of it\n",
		"\x1b[2m┊ \x1b[0m\x1b[2mc\x1b[0m\n      \x1b[2m┊ \x1b[0m\x1b[2m… 1 line more; --full prints all\x1b[0m\n",
		"      \x1b[1m→ Bash\x1b[0m  cat a cat b, timeout: 5\n",
		"      \x1b[2m← Bash\x1b[0m\n" + strings.Repeat("        line\n", 10) + "        \x1b[2m… 20 lines more; --full prints all\x1b[0m\n",
		"      \x1b[31m← Bash failed\x1b[0m\n        it broke\n",
		"        \x1b[2m… 90 lines more; --full prints all\x1b[0m\n",
	} {
		if !strings.Contains(terminal, want) {
			t.Errorf("the terminal lacks %q:\n%s", want, terminal)
		}
	}
	for how, text := range map[string]string{"a pipe": printed(t, 0, nil, events...), "--full": printed(t, 40, func(p *printer) { p.full = true }, events...)} {
		if strings.Count(text, "        line\n") != 30 || strings.Contains(text, "--full") || !strings.Contains(text, "        cat a\n        cat b\n        timeout: 5\n") {
			t.Errorf("%s gets\n%s", how, text)
		}
	}
	if pipe := printed(t, 0, nil, events...); strings.Contains(pipe, "\x1b") || !strings.Contains(pipe, "      Please look at all of this and tell me what you think of it\n") {
		t.Errorf("a pipe gets\n%s", pipe)
	}
	raw := printed(t, 40, func(p *printer) { p.raw = true }, events...)
	if !strings.Contains(raw, `"output": "line\nline\n`) || !strings.Contains(raw, `\u001b[31m`) {
		t.Errorf("raw is\n%s", raw)
	}
}

// TestPrinterIsSafe: whatever is in an event, in whatever shape, no control character of it
// reaches the terminal, and its lines stay behind their indent.
func TestPrinterIsSafe(t *testing.T) {
	const evil = `\u001b]52;c;ZXZpbA==\u0007\u009b31m\u202e\r\b\u0000x\ny`
	for _, data := range []string{
		`"E"`, `{"role":"E","content":"E","name":"E"}`, `[{"type":"thinking","thinking":"E"},{"type":"tool_use","id":"E","name":"E","input":{"E":"E","f":{"E":["E"]}}}]`,
		`[{"type":"tool_result","tool_use_id":"E","content":"E"},{"type":"tool_result","tool_use_id":"x","content":{"E":"E"}}]`,
		`{"odd":"E","E":1}`, `[{"type":"E","text":"E"},{"type":"image","source":{"type":"url","url":"E"},"alt":"E"}]`, `{"content":"x","usage":{"input_tokens":1},"model":"E","more":"E"}`,
	} {
		data = strings.ReplaceAll(data, "E", evil)
		for _, kind := range []string{"message", "tool_call", "tool_result", "summary", "E"} {
			for _, width := range []int{0, 30} {
				text := printed(t, width, nil, hansard.Event{Kind: kind, Data: []byte(data)})
				ours := strings.NewReplacer("\x1b[0m", "", "\x1b[1m", "", "\x1b[2m", "", "\x1b[31m", "", "\x1b[33m", "", "\x1b[1;32m", "", "\x1b[1;36m", "").Replace(text)
				if i := strings.IndexFunc(ours, func(r rune) bool { return r != '\n' && r != '\t' && (isControl(r) || isHidden(r)) }); i >= 0 && width > 0 || strings.ContainsAny(text, "\a\b\r\x00\u009b\u202e") {
					t.Errorf("%s %s in %d columns: %q", kind, data, width, text)
				}
				for i, line := range strings.Split(strings.TrimSuffix(ours, "\n"), "\n") {
					if i > 0 && line != "" && !strings.HasPrefix(line, indent) {
						t.Errorf("%s %s: the line %q is not indented", kind, data, line)
					}
				}
			}
		}
	}
}

// BenchmarkPrint prints output that a terminal folds.
func BenchmarkPrint(b *testing.B) {
	var buf bytes.Buffer
	p := newPrinter(newOutput(&buf), time.Now)
	e := hansard.Event{Kind: "message", Role: "assistant", Data: fmt.Appendf(nil, `[{"type":"text","text":%q}]`, strings.Repeat("some words ", 100))}
	for b.Loop() {
		if err := p.print(e); err != nil {
			b.Fatal(err)
		}
		p.out.Flush()
		buf.Reset()
	}
}
