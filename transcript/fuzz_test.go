package transcript

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"hansard"
)

// leaves gives the strings of a value that has to be in the parts, with the names
// of the members around them.
func leaves(v any, path []string, yield func(path []string, text string)) {
	switch v := v.(type) {
	case string:
		yield(path, v)
	case []any:
		for _, inner := range v {
			leaves(inner, path, yield)
		}
	case map[string]any:
		for name, inner := range v {
			leaves(inner, append(slices.Clone(path), name), yield)
		}
	}
}

// hasTwice tells whether an object has a member twice, which a map can't show.
func hasTwice(data []byte) bool {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return false
	}
	again, _ := json.Marshal(v)
	return bytes.Count(again, []byte(`:`)) != bytes.Count(data, []byte(`:`)) || bytes.Count(again, []byte(`"`)) != bytes.Count(data, []byte(`"`))
}

// count is the number of parts, and their depth.
func count(parts []Part) (n, depth int) {
	for _, p := range parts {
		inner, below := count(p.Parts)
		n, depth = n+1+inner, max(depth, below)
	}
	return n, depth + 1
}

// FuzzOf: any bytes give parts, boundedly many of them, and no text is lost.
func FuzzOf(f *testing.F) {
	for _, c := range shapes {
		f.Add(c.kind, []byte(c.data))
	}
	for _, data := range heavyData(100) {
		f.Add("message", data)
	}
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		got := Of(hansard.Event{Kind: kind, Data: data})
		if n, depth := count(got.Parts); n > 10*maxParts || depth > 3*maxDepth {
			t.Fatalf("%d parts, %d deep", n, depth)
		}
		text := got.PlainText()
		if json.Valid(data) && utf8.Valid(data) && (!utf8.ValidString(text) || strings.ContainsRune(text, 0x1b)) {
			t.Fatalf("the text %q is not fit to be read", text)
		}
		got.Preview(80)
		clipped := Clip(got.Parts, 100)
		if n, _ := count(clipped); n != func() int { n, _ := count(got.Parts); return n }() {
			t.Fatal("clipping changed the number of parts")
		}
		if n := size(clipped); n > 400+1300*len(everything(clipped)) {
			t.Fatalf("clipped to 100 it has %d bytes", n)
		}
		checkPretty(t, data)
		if kind == hansard.KindTurn || hasTwice(data) {
			return
		}
		nothingLost(t, got, kind, data)
	})
}

func size(parts []Part) int {
	n := 0
	for _, p := range parts {
		n += len(p.Text) + len(p.URL) + size(p.Parts)
		for _, a := range p.Args {
			n += len(a.Text)
		}
	}
	return n
}

// checkPretty: laid out, JSON is the same JSON.
func checkPretty(t *testing.T, data []byte) {
	pretty := Pretty(data)
	if !json.Valid(data) {
		if pretty != string(data) {
			t.Fatalf("%q became %q", data, pretty)
		}
		return
	}
	var a, b bytes.Buffer
	if json.Compact(&a, data) != nil || json.Compact(&b, []byte(pretty)) != nil || a.String() != b.String() {
		t.Fatalf("%s\n became %s", data, pretty)
	}
}

// nothingLost: every text is in the parts, but for what nobody reads.
func nothingLost(t *testing.T, got Reading, kind string, data []byte) {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return
	}
	have := []string{everything(got.Parts), got.PlainText(), got.Author, got.Role}
	var inJSON func(parts []Part)
	inJSON = func(parts []Part) {
		for _, p := range parts {
			var inner any
			if json.Unmarshal(p.JSON, &inner) == nil {
				leaves(inner, nil, func(_ []string, text string) { have = append(have, text) })
			}
			inJSON(p.Parts)
		}
	}
	inJSON(got.Parts)
	all := strings.Join(have, "\n")
	leaves(v, nil, func(path []string, text string) {
		if len(path) > 0 && slices.Contains(notRead, path[len(path)-1]) || slices.ContainsFunc(path, func(name string) bool { return slices.Contains(unread, name) }) {
			return
		}
		if strings.HasPrefix(text, `{"output":`) || strings.Contains(all, strings.TrimSpace(text)) {
			return
		}
		t.Fatalf("%s: %q at %v is lost: %s\n became %s", kind, text, path, data, brief(got.Parts))
	})
}

// unread are further members that some shape leaves out; TestNothingIsLost looks at
// the shapes one by one.
var unread = slices.Concat(noise, finer, []string{toolUseResult, "data", "details", "key", "format", "mediaType", "media_type", "mimeType", "mime_type", "total_token_usage"})
