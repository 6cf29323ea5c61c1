package jsontext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

var samples = []string{``, ` `, `null`, `nul`, `nulll`, `true `, ` false`, `tru`, `0`, `-0`, `-`, `00`, `01`, `1.`, `.1`, `1.0`, `1e`, `1e+`, `1e-7`, `1E+07`, `1.5e3x`, `--1`, `+1`, `1 2`,
	`""`, `"`, `"a`, `"a\"`, `"\\"`, `"\u00e9"`, `"\u00g9"`, `"\u00"`, `"\x"`, "\"\x00\"", "\"\x1f12345678\"", "\"1234567\x1f\"", "\"\xff\xfe\"", `"12345678\n12345678"`, `"1234567"`, `"12345678"`, `"123456789"`, `"a" `,
	`{}`, `{ }`, `{`, `}`, `[]`, `[ ]`, `[`, `]`, `[}`, `{]`, `[1]`, `[1,]`, `[,1]`, `[1 2]`, `[1,2 , 3]`, `[[[]]]`, `[[],[]]`, `[{},{}]`, `[[}`, `{"a"}`, `{"a":}`, `{"a":1}`, `{"a":1,}`, `{"a":1,"b"}`, `{"a":1,"b":[{}]}`,
	`{a:1}`, `{"a" : 1 , "b":{"c":[null,true,false,-1.5e9]}}`, `{"a":1]`, `["a":1]`, `{"a",1}`, `{,}`, `{"a":1 "b":2}`, `{}{}`, `[]x`, "\ufeff1", "\u00a01", "1\v", "\t\r\n 1\t\r\n ", `{"":""}`, `{"\u0000":1}`,
	strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth), strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1)}

func compare(t *testing.T, data []byte) {
	t.Helper()
	if got, want := Valid(data), json.Valid(data); got != want {
		t.Errorf("Valid(%.200q) = %v, want %v", data, got, want)
	}
	member := append(append([]byte(`{"a":`), data...), '}')
	if got, want := ValidMember(data), json.Valid(member) && json.Valid(data); got != want {
		t.Errorf("ValidMember(%.200q) = %v, want %v", data, got, want)
	}
	var text string
	plain := json.Unmarshal(data, &text) == nil && bytes.Equal(data, []byte(`"`+text+`"`))
	// Unmarshal replaces what is not UTF-8, so that only one direction can be compared.
	if got := isPlain(data); plain && !got || got && !json.Valid(data) {
		t.Errorf("PlainText(%.200q) = %v", data, got)
	}
}

// isPlain reports whether data is a string without escapes, and nothing else.
func isPlain(data []byte) bool {
	text, ok := PlainText(data)
	return ok && len(text)+2 == len(data)
}

// TestValid: it says what json.Valid says, of single cases and of random texts around them.
func TestValid(t *testing.T) {
	for _, s := range samples {
		compare(t, []byte(s))
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	short := samples[:len(samples)-4]
	for range 200_000 {
		text := []byte(short[rng.IntN(len(short))])
		for range rng.IntN(4) {
			part := []byte(short[rng.IntN(len(short))])
			at := 0
			if len(text) > 0 {
				at = rng.IntN(len(text))
			}
			switch rng.IntN(4) {
			case 0:
				text = append(append(bytes.Clone(text[:at]), part...), text[at:]...)
			case 1:
				text = fmt.Appendf(nil, `{"k%d":%s,"l":[%s]}`, at, text, part)
			case 2:
				if len(text) > 0 {
					text = bytes.Clone(text)
					text[at] = `{}[]",:\0e-.tn `[rng.IntN(15)]
				}
			default:
				text = text[:at]
			}
		}
		compare(t, text)
	}
}

// upTo are the numbers below n.
func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// TestPlainText: with every byte at every place of a text, what is called a plain string is
// one, and every string without escapes is called one.
func TestPlainText(t *testing.T) {
	// From 128 bytes on, 64 of them are checked at once.
	for _, n := range append(upTo(76), 127, 128, 191, 192, 193, 255, 256, 257, 300) {
		for at := range n {
			for c := range 256 {
				data := make([]byte, n+2)
				for i := range data {
					data[i] = 'a' + byte(i%26)
				}
				data[0], data[n+1], data[at+1] = '"', '"', byte(c)
				plain := isPlain(data)
				if want := c != '\\' && c != '"' && c >= ' '; plain != want {
					t.Errorf("%q: %v, want %v", data, plain, want)
				}
				if plain && !json.Valid(data) {
					t.Errorf("%q is not JSON", data)
				}
			}
		}
	}
	for _, no := range []string{``, `"`, `a`, `"a`, `a"`, `1`, `""""`, `"a","b"`} {
		if isPlain([]byte(no)) {
			t.Errorf("%s is called a string", no)
		}
	}
	if !isPlain([]byte(`""`)) {
		t.Error("an empty string is not called one")
	}
	if text, ok := PlainText([]byte(`"role","more"`)); !ok || string(text) != "role" {
		t.Errorf("a string with more behind it is read as %q, %v", text, ok)
	}
}

// nested is a value with brackets around brackets, to a depth, and values beside them.
func nested(rng *rand.Rand, depth int) string {
	if depth == 0 {
		return "1"
	}
	inner := nested(rng, depth-1)
	return []string{`[` + inner + `]`, `[{},` + inner + `,[[]]]`, `{"a":` + inner + `}`, `{"a":[],"b":` + inner + `,"c":{"d":{}}}`}[rng.IntN(4)]
}

// TestNesting: brackets are matched at every depth, also around the 64 from which on they are
// kept in another place; texts that are not as deep take no memory.
func TestNesting(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 5_000 {
		text := []byte(nested(rng, 50+rng.IntN(40)))
		compare(t, text)
		if !Valid(text) {
			t.Fatalf("%s is not valid", text)
		}
		at := rng.IntN(len(text))
		for !bytes.ContainsRune([]byte("[]{}"), rune(text[at])) {
			at = rng.IntN(len(text))
		}
		text[at] = "[]{}"[rng.IntN(4)]
		compare(t, text)
	}
	flat := []byte(nested(rng, 60))
	if n := testing.AllocsPerRun(10, func() { Valid(flat) }); n != 0 {
		t.Errorf("a check takes memory %v times", n)
	}
}

func FuzzValid(f *testing.F) {
	for _, s := range samples {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { compare(t, data) })
}

// BenchmarkValid compares the two on what agents store.
func BenchmarkValid(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 20)
	for name, data := range map[string]string{
		"object": fmt.Sprintf(`{"type":"message","content":[{"type":"text","text":%q}],"usage":{"input_tokens":1200,"output_tokens":77}}`, text),
		"code":   fmt.Sprintf(`{"type":"tool_result","output":%q}`, strings.Repeat("func main() {\n\tfmt.Println(\"hello\")\n}\n", 25)),
	} {
		for who, valid := range map[string]func([]byte) bool{"ours": Valid, "encoding-json": json.Valid} {
			b.Run(name+"/"+who, func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					if !valid([]byte(data)) {
						b.Fatal(data)
					}
				}
			})
		}
	}
}

// TestValidAround: an object may have members that are as deep as a text of their own may be.
func TestValidAround(t *testing.T) {
	for n, want := range map[int]bool{1: true, maxDepth: true, maxDepth + 1: false} {
		text := []byte(`{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`)
		if got := ValidAround(text); got != want {
			t.Errorf("%d levels: %v", n, got)
		}
	}
}
