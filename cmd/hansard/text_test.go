package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hansard"
)

// TestEscape: the content of a session can't control the terminal of its reader.
func TestEscape(t *testing.T) {
	tests := []struct{ in, text, line string }{
		{"plain ünï 日本 👩‍👧", "plain ünï 日本 👩‍👧", "plain ünï 日本 👩‍👧"},
		{"a\nb\tc", "a\nb\tc", `a\nb\tc`},
		{"a\r\nb", "a\nb", `a\r\nb`},
		{"over\rwrite", `over\rwrite`, `over\rwrite`},
		{"\x1b]52;c;ZXZpbA==\x07", `\x1b]52;c;ZXZpbA==\x07`, `\x1b]52;c;ZXZpbA==\x07`},
		{"c1 \u009b31m", `c1 \x9b31m`, `c1 \x9b31m`},
		{"del\x7f nul\x00", `del\x7f nul\x00`, `del\x7f nul\x00`},
		{"bidi \u202e x\u2066", `bidi \u202e x\u2066`, `bidi \u202e x\u2066`},
		{"marks \u200f\u061c", `marks \u200f\u061c`, `marks \u200f\u061c`},
		{"ad\u200bmin \ufeff\u00ad\u2060", `ad\u200bmin \ufeff\u00ad\u2060`, `ad\u200bmin \ufeff\u00ad\u2060`},
		{"ad\u200dmin\u200c", `ad\u200dmin\u200c`, `ad\u200dmin\u200c`},
		{"می\u200cخواهم", "می\u200cخواهم", "می\u200cخواهم"},
		{"日\u200d\u200d本", `日\u200d\u200d本`, `日\u200d\u200d本`},
		{"tag \U000e0041", `tag \U000e0041`, `tag \U000e0041`},
		{"sep\u2028", `sep\u2028`, `sep\u2028`},
		{"zero\u200bwidth\u200d\ufeff\u2060\u00ad", `zero\u200bwidth\u200d\ufeff\u2060\u00ad`, `zero\u200bwidth\u200d\ufeff\u2060\u00ad`},
		{"marks \u200e\u200f\u061c filler \u3164", `marks \u200e\u200f\u061c filler \u3164`, `marks \u200e\u200f\u061c filler \u3164`},
		{"tag \U000E0041", `tag \U000e0041`, `tag \U000e0041`},
		{"می\u200cخواهم", "می\u200cخواهم", "می\u200cخواهم"},
		{"bad \xff\xc3", `bad \xff\xc3`, `bad \xff\xc3`},
		{"", "", ""},
	}
	for _, tt := range tests {
		if got := escapeText(tt.in); got != tt.text {
			t.Errorf("escapeText(%q) = %q, want %q", tt.in, got, tt.text)
		}
		if got := escapeLine(tt.in); got != tt.line {
			t.Errorf("escapeLine(%q) = %q, want %q", tt.in, got, tt.line)
		}
	}
}

// TestTable: columns are aligned by displayed width, not by bytes, and a narrow terminal first
// cuts what may be cut, then drops the least important columns, never the id.
func TestTable(t *testing.T) {
	sample := func() *table {
		tab := &table{columns: []column{{name: "ID"}, {name: "TITLE", shrink: 9, drop: 3}, {name: "N", right: true, drop: 2}, {name: "MARKS"}, {name: "LABELS", shrink: 4, drop: 1}}}
		tab.add("", "a-long-id", "日本語の題名", "1", "", "k=v")
		tab.add("", "b", "plain", "1,234", "", "")
		return tab
	}
	tests := []struct {
		width int
		want  string
	}{
		{0, "ID         TITLE             N  LABELS\n" +
			"a-long-id  日本語の題名      1  k=v\n" +
			"b          plain         1,234\n"},
		{33, "ID         TITLE          N  LAB…\n" +
			"a-long-id  日本語の…      1  k=v\n" +
			"b          plain      1,234\n"},
		{32, "ID         TITLE             N\n" +
			"a-long-id  日本語の題名      1\n" +
			"b          plain         1,234\n"},
		{26, "ID         TITLE\n" +
			"a-long-id  日本語の題名\n" +
			"b          plain\n"},
		{19, "ID         TITLE\n" +
			"a-long-id  日本語…\n" +
			"b          plain\n"},
		{18, "ID\n" +
			"a-long-id\n" +
			"b\n"},
		{1, "ID\n" +
			"a-long-id\n" +
			"b\n"},
	}
	for _, tt := range tests {
		var buf bytes.Buffer
		out := newOutput(&buf)
		out.width = tt.width
		if err := sample().print(out); err != nil {
			t.Fatal(err)
		}
		out.Flush()
		if got := buf.String(); got != tt.want {
			t.Errorf("width %d:\n%s\nwant\n%s", tt.width, got, tt.want)
		}
	}
}

func TestHuman(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 KB", 9_949: "9.9 KB", 9_950: "10 KB",
		999_499: "999 KB", 999_500: "1.0 MB", 1_230_000_000: "1.2 GB", 9_000_000_000_000_000_000: "9.0 EB"} {
		if got := humanBytes(n); got != want {
			t.Errorf("humanBytes(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := humanCount(n); got != want {
			t.Errorf("humanCount(%d) = %q, want %q", n, got, want)
		}
	}
	now := time.Date(2024, 6, 15, 12, 0, 0, 0, time.Local)
	for ago, want := range map[time.Duration]string{0: "just now", 59 * time.Second: "just now", time.Minute: "1 min ago",
		23 * time.Hour: "23 h ago", 49 * time.Hour: "2 d ago", 40 * 24 * time.Hour: "2024-05-06", -time.Hour: "2024-06-15 13:00"} {
		if got := humanAgo(now, now.Add(-ago)); got != want {
			t.Errorf("humanAgo(%s) = %q, want %q", ago, got, want)
		}
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2024, 6, 15, 12, 0, 0, 0, time.Local)
	for in, want := range map[string]time.Time{
		"":                     {},
		"90m":                  now.Add(-90 * time.Minute),
		"7d":                   now.AddDate(0, 0, -7),
		"2024-06-01":           time.Date(2024, 6, 1, 0, 0, 0, 0, time.Local),
		"2024-06-01 10:00":     time.Date(2024, 6, 1, 10, 0, 0, 0, time.Local),
		"2024-06-01T10:00:00Z": time.Date(2024, 6, 1, 10, 0, 0, 0, time.UTC),
	} {
		got, err := parseTime(now, "since", in)
		if err != nil || !got.Equal(want) {
			t.Errorf("parseTime(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"yesterday", "-1h", "-1d", "d", "2024-13-01"} {
		if _, err := parseTime(now, "since", in); err == nil {
			t.Errorf("parseTime(%q) was accepted", in)
		}
	}
}

// TestSplitScheme: paths with colons, Windows drives and URLs are told apart.
func TestSplitScheme(t *testing.T) {
	for in, want := range map[string][2]string{
		"sessions":       {"", "sessions"},
		"./a:b":          {"", "./a:b"},
		`C:\data`:        {"", `C:\data`},
		"file:x":         {"file", "x"},
		"FILE:///x":      {"file", "///x"},
		"postgres://h/d": {"postgres", "//h/d"},
		"/abs:olute":     {"", "/abs:olute"},
		"1a:b":           {"", "1a:b"},
	} {
		if scheme, rest := splitScheme(in); scheme != want[0] || rest != want[1] {
			t.Errorf("splitScheme(%q) = %q, %q, want %q", in, scheme, rest, want)
		}
	}
	if path, err := filePath("file", "///srv/my%20sessions"); err != nil || path != "/srv/my sessions" {
		t.Errorf("filePath = %q, %v", path, err)
	}
}

// TestOutcome: every error of the contract has its exit code.
func TestOutcome(t *testing.T) {
	for err, want := range map[error]int{
		hansard.ErrInvalid: 2, hansard.ErrTooLarge: 2, &usageError{}: 2,
		hansard.ErrNotFound: 3, hansard.ErrDeleted: 3, errNoStore: 3,
		hansard.ErrExists: 4, hansard.ErrConflict: 4, hansard.ErrKeyReused: 4, &hansard.ConflictError{}: 4,
		hansard.ErrHeld: 5, hansard.ErrFenced: 5, &hansard.HeldError{}: 5,
		hansard.ErrDamaged: 6, &hansard.DamagedError{}: 6, &damageFound{}: 6,
		hansard.ErrVersion: 1, hansard.ErrBusy: 1, hansard.ErrNoSpace: 1, hansard.ErrReadOnly: 1, hansard.ErrUnknown: 1,
		hansard.ErrFailed: 1, hansard.ErrUnsupported: 1, errors.New("other"): 1,
		fmt.Errorf("%w: %w", hansard.ErrUnknown, hansard.ErrConflict): 1,
	} {
		if got, code := outcome(t.Context(), &lineError{3, err}); got != want || code == "" {
			t.Errorf("outcome(%v) = %d %q, want %d", err, got, code, want)
		}
	}
}

func TestShellQuote(t *testing.T) {
	for in, want := range map[string]string{"demo": "demo", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "~x": "'~x'", "file:///x": "file:///x"} {
		if got := shellQuote(in); got != want {
			t.Errorf("shellQuote(%q) = %s, want %s", in, got, want)
		}
	}
}

// TestEscaper: in whatever pieces a text comes, the terminal shows the same.
func TestEscaper(t *testing.T) {
	const text = "a\r\nb\rc é € 😀 \x1b[31m \u009b \xff \xf0\x9f end\r"
	for n := 1; n <= len(text); n++ {
		var out strings.Builder
		e := &escaper{to: &out}
		for rest := text; rest != ""; {
			piece := rest[:min(n, len(rest))]
			if got, err := e.Write([]byte(piece)); got != len(piece) || err != nil {
				t.Fatal(got, err)
			}
			rest = rest[len(piece):]
		}
		if err := e.end(); err != nil || out.String() != escapeText(text) {
			t.Errorf("in pieces of %d: %q, %v", n, out.String(), err)
		}
	}
}
