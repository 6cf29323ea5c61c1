package terms

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"hansard"
)

func termsOf(text string) (out []string) {
	Scan(text, func(term []byte, start, first, end int) bool {
		if start < 0 || start >= first || first > end || end > len(text) {
			panic("a term out of its text")
		}
		out = append(out, string(term))
		return true
	})
	return out
}

func TestScan(t *testing.T) {
	for text, want := range map[string]string{
		"Hello, World":                  "hello world",
		"read_file(a.go)":               "read file a go",
		"Zürich ÉCOLE naïve":            "zurich ecole naive",
		"e\u0301te\u0301 \u0130stanbul": "ete istanbul",
		"Straße STRASSE ǅ":              "strasse strasse dz",
		"ΣΊΣΥΦΟΣ σίσυφος":               "σισυφοσ σισυφοσ",
		"東京都に行く":                        "東京 京都 都に に行 行く く",
		"GPT4を使う":                       "gpt4 を使 使う う",
		"ｶﾀｶﾅ ＡＢＣ":                      "カタ タカ カナ ナ abc",
		"서울에서":                          "서울 울에 에서 서",
		"ภาษาไทย":                       "ภา าษ ษา าไ ไท ทย ย",
		"हिन्दी":                        "हिन्दी",
		"co\u00ADoperate":               "cooperate",
		"v1.2 ½ x²":                     "v1 2 12 x2",
		"🎉 — …":                         "",
		strings.Repeat("a", 128) + " b": strings.Repeat("a", 128) + " b",
		strings.Repeat("a", 129) + " b": "b",
		"שָׁלוֹם مُحَمَّد":              "שלום محمد",
	} {
		if got := strings.Join(termsOf(text), " "); got != want {
			t.Errorf("%q has the terms %q, want %q", text, got, want)
		}
	}
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		text, query string
		want        string // the snippet with its marks in brackets; empty: not found
	}{
		{"The quick brown fox", "quick", "The [quick] brown fox"},
		{"The quick brown fox", "FOX the", "[The] quick brown [fox]"},
		{"The quick brown fox", "quick cat", ""},
		{"The quick brown fox", `"brown fox"`, "The quick [brown fox]"},
		{"The quick brown fox", `"quick fox"`, ""},
		{"The quick brown fox", "qui*", "The [quick] brown fox"},
		{"The quick brown fox", "qui", ""},
		{"The quick brown fox", `"quick bro"*`, "The [quick brown] fox"},
		{"The quick brown fox", `"quick bro*"`, "The [quick brown] fox"},
		{"call read_file now", "read_file", "call [read_file] now"},
		{"call file_read now", "read_file", ""},
		{"Zürich ist schön", "zurich SCHON", "[Zürich] ist [schön]"},
		{"東京都に行く", "京都", "東[京都]に行く"},
		{"東京都に行く", "京", "東[京]都に行く"},
		{"東京都に行く", "く", "東京都に行[く]"},
		{"東京都に行く", "京都に", "東[京都に]行く"},
		{"東京都に行く", "京行", ""},
		{"東京都に行く", "京に", ""},
		{"東京都 に行く", "都に", ""},
		{"東京都 に行く", `"都 に"`, "東京[都 に]行く"},
		{"東京都 に行く", `"京都 に行"`, "東[京都 に行]く"},
		{"東京都市 に行く", `"都 に"`, ""},
		{"GPT4を使う", "gpt4 使う", "[GPT4]を[使う]"},
		{"GPT4を使う", "gpt4を", "[GPT4を]使う"},
		{"a\n\n  b\tc", "b", "a [b] c"},
		{"", "b", ""},
	} {
		q, err := Parse(c.query)
		if err != nil {
			t.Fatalf("%s: %v", c.query, err)
		}
		f, ok := q.Find(c.text)
		got := ""
		if ok {
			got = marked(f.Snippet(c.text))
		}
		if got != c.want {
			t.Errorf("%q in %q: %q, want %q", c.query, c.text, got, c.want)
		}
	}
}

// marked writes a snippet with its marks in brackets.
func marked(s string, marks []hansard.Mark) string {
	for i := len(marks) - 1; i >= 0; i-- {
		m := marks[i]
		s = s[:m.Start] + "[" + s[m.Start:m.End] + "]" + s[m.End:]
	}
	return s
}

func TestParseRefuses(t *testing.T) {
	for text, large := range map[string]bool{
		"": false, " ": false, "…": false, "*": false, `""`: false, `"open`: false, "a\xff": false, strings.Repeat("x", 129): false,
		strings.Repeat("x ", 33): true, strings.Repeat("x", 1025): true,
	} {
		_, err := Parse(text)
		if !errors.Is(err, hansard.ErrInvalid) && !(large && errors.Is(err, hansard.ErrTooLarge)) {
			t.Errorf("%.30q: %v", text, err)
		}
	}
	for _, text := range []string{"a", "* a", "a -", "**kwargs", `a"b"c`, strings.Repeat("字", 200)} {
		if _, err := Parse(text); err != nil {
			t.Errorf("%.30q: %v", text, err)
		}
	}
	if _, err := Check(&hansard.SearchQuery{Text: "a", Offset: -1}); !errors.Is(err, hansard.ErrInvalid) {
		t.Errorf("a negative offset: %v", err)
	}
}

// TestSnippet: the snippet is where most of what was asked for stands, on one line, of
// bounded length, and its marks are what was found.
func TestSnippet(t *testing.T) {
	text := "one alpha here. " + strings.Repeat("filling words of no interest\n", 40) + "then alpha and beta stand together " + strings.Repeat("and more ", 100)
	q, _ := Parse("alpha beta")
	f, _ := q.Find(text)
	snippet, marks := f.Snippet(text)
	if !strings.Contains(snippet, "alpha and beta") || strings.Contains(snippet, "\n") || !strings.HasPrefix(snippet, "…") || !strings.HasSuffix(snippet, "…") {
		t.Errorf("the snippet is %q", snippet)
	}
	if len(marks) != 2 || snippet[marks[0].Start:marks[0].End] != "alpha" || snippet[marks[1].Start:marks[1].End] != "beta" {
		t.Errorf("the marks are %q", marked(snippet, marks))
	}
	if len(snippet) > snippetBytes+20 {
		t.Errorf("the snippet has %d bytes", len(snippet))
	}
	few, _ := q.Find("alpha beta " + strings.Repeat("x ", 300))
	many, _ := q.Find("alpha beta alpha beta")
	if few.Score() >= many.Score() {
		t.Errorf("two of each in a short text are %v, one of each in a long one %v", many.Score(), few.Score())
	}
}

// TestSubstrings: in a script without spaces exactly the substrings are found.
func TestSubstrings(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	letters := []rune("東京都にa ")
	random := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteRune(letters[rng.IntN(len(letters))])
		}
		return b.String()
	}
	for range 20_000 {
		text, sought := random(12), random(1+rng.IntN(4))
		if strings.ContainsAny(sought, " a") {
			continue
		}
		q, err := Parse(sought)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := q.Find(text); ok != strings.Contains(text, sought) {
			t.Fatalf("%q in %q: %v", sought, text, ok)
		}
	}
}

func TestOf(t *testing.T) {
	base64 := strings.Repeat("QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0NTY3ODkw", 10)
	for _, c := range []struct{ kind, data, want, not string }{
		{"message", `{"role":"user","content":[{"type":"text","text":"hello there"}]}`, "hello there", "content type"},
		{"message", `{"unheard":{"of":"shape","n":42,"list":["x y"]}}`, "shape 42 x y", "unheard of list"},
		{"tool_call", `{"name":"read_file","arguments":{"path":"a/b.go","deep":{"inner":"word"}}}`, "read file a b go word", "arguments inner"},
		{"message", `"see ` + base64 + ` behind"`, "see behind", "quj"},
		{"message", `"/Users/alice/Documents/Projects2024/Customer/Reports/Final/QuarterX/Y9/Z"`, "users alice documents", "zzz"},
		{"turn", `{"change":"granted","holder":{"label":"planner"}}`, "", "planner"},
		{"message", `"line\nbreak \u00e9"`, "line break e", "nbreak"},
	} {
		got := " " + strings.Join(termsOf(Of(hansard.Event{Kind: c.kind, Data: []byte(c.data)}).Text), " ") + " "
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %.100q, want %q", c.data, got, c.want)
		}
		for _, not := range strings.Fields(c.not) {
			if strings.Contains(got, " "+not) {
				t.Errorf("%s: %.100q has %q", c.data, got, not)
			}
		}
	}
	long := Of(hansard.Event{Kind: "message", Data: hansard.Text("begin " + strings.Repeat("middle 字 ", 100_000) + " end")}).Text
	if len(long) > hansard.MaxSearchedText || !strings.HasPrefix(long, "begin") || !strings.HasSuffix(long, " end") || !utf8.ValidString(long) {
		t.Errorf("a long text has %d bytes, %q … %q", len(long), long[:10], long[len(long)-10:])
	}
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"a", `"b c"*`, "東京* x", "é-\u0301", `"`, "\x00*\"\"", "ﷺ ½*", "ﬁ*"} {
		f.Add(s, "some text é 東京都")
	}
	f.Fuzz(func(t *testing.T, query, text string) {
		q, err := Parse(query)
		if err != nil {
			if !errors.Is(err, hansard.ErrInvalid) && !errors.Is(err, hansard.ErrTooLarge) {
				t.Fatalf("%q: %v", query, err)
			}
			return
		}
		again, err := Parse(query)
		if err != nil || !reflect.DeepEqual(q, again) {
			t.Fatal("not the same twice")
		}
		for _, p := range q.Phrases {
			for _, term := range p.Terms {
				if term == "" || strings.ContainsFunc(term, func(r rune) bool { return r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
					t.Fatalf("%q has the term %q", query, term)
				}
			}
		}
		for _, text := range []string{text, query, text + " " + query} {
			found, ok := q.Find(text)
			if !ok {
				continue
			}
			snippet, marks := found.Snippet(text)
			last := 0
			for _, m := range marks {
				if m.Start < last || m.End <= m.Start || m.End > len(snippet) {
					t.Fatalf("%q in %q: the marks of %q are %v", query, text, snippet, marks)
				}
				last = m.End
			}
			if found.Score() <= 0 || utf8.ValidString(text) && !utf8.ValidString(snippet) {
				t.Fatalf("%q in %q: score %v, snippet %q", query, text, found.Score(), snippet)
			}
		}
	})
}
