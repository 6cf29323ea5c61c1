package transcript

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"hansard"
)

// heavyData is what would make a careless reader slow, or run out of stack: about n
// of everything.
func heavyData(n int) map[string][]byte {
	nest := func(open, inner, closing string, n int) []byte {
		return []byte(strings.Repeat(open, n) + inner + strings.Repeat(closing, n))
	}
	many := func(item string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"m%d":"x"`, i)
	}
	return map[string][]byte{
		"arrays":         nest("[", "", "]", min(n, 9000)),
		"objects":        nest(`{"a":`, "1", "}", min(n, 9000)),
		"contents":       nest(`{"content":`, `"x"`, "}", min(n, 9000)),
		"content lists":  nest(`{"content":[`, `{"type":"text","text":"x"}`, "]}", min(n, 4000)),
		"results":        nest(`{"type":"tool_result","tool_use_id":"x","content":[`, `{"type":"text","text":"x"}`, "]}", min(n, 4000)),
		"bare results":   nest(`{"type":"tool_result","content":`, `"x"`, "}", min(n, 9000)),
		"payloads":       nest(`{"type":"response_item","payload":`, `{"type":"message","content":"x"}`, "}", min(n, 9000)),
		"messages":       nest(`{"type":"user","message":`, `{"content":"x"}`, "}", min(n, 9000)),
		"contents again": nest(`{"content":{"parts":[`, `{"text":"x"}`, "]}}", min(n, 3000)),
		"many texts":     []byte(many(`{"type":"text","text":"x"}`, n)),
		"many parts":     []byte(`{"parts":` + many(`{"text":"x"}`, n) + `}`),
		"many calls":     []byte(`{"content":null,"tool_calls":` + many(`{"id":"a","function":{"name":"f","arguments":"{}"}}`, n) + `}`),
		"many results":   []byte(many(`{"type":"tool_result","tool_use_id":"t","content":`+many(`{"type":"text","text":"x"}`, 20)+`}`, n/20+1)),
		"almost":         []byte(strings.TrimSuffix(many(`{"type":"text","text":"x"}`, n), "]") + `,"x"]`),
		"many members":   []byte("{" + strings.Join(members, ",") + "}"),
		"many arguments": []byte(`{"type":"tool_use","name":"f","input":{` + strings.Join(members, ",") + `}}`),
		"summaries":      []byte(`{"type":"reasoning","summary":` + many(`{"text":"x"}`, n) + `}`),
		"long":           []byte(`"` + strings.Repeat(`x\n`, n) + `"`),
	}
}

// TestBounds: whatever the data, there are boundedly many parts, not too deep; the
// rest is one more part.
func TestBounds(t *testing.T) {
	for name, data := range heavyData(20_000) {
		if !json.Valid(data) {
			t.Fatalf("%s: the data is not JSON", name)
		}
		got := Of(hansard.Event{Kind: "message", Data: data})
		if n, depth := count(got.Parts); n > 2*maxParts+10 || depth > 2*maxDepth || n == 0 {
			t.Errorf("%s: %d parts, %d deep", name, n, depth)
		}
		if name == "many texts" && (len(got.Parts) != maxParts+1 || got.Parts[maxParts].Label != "the rest") {
			t.Errorf("%s: %d parts, the last %q", name, len(got.Parts), got.Parts[len(got.Parts)-1].Label)
		}
	}
	for _, data := range heavyData(1200) {
		nothingLost(t, Of(hansard.Event{Kind: "message", Data: data}), "message", data)
	}
}

// TestLinear: twice the data is at most about twice the work, by the count of bytes
// that were looked at, and no shape takes more than its share.
func TestLinear(t *testing.T) {
	looked := func(data []byte) int {
		r := &reader{left: maxParts, effort: effort(maxLooks*len(data) + 1000)}
		before := r.effort
		r.event("message", value(data))
		return int(before - max(r.effort, 0))
	}
	small, large := heavyData(1000), heavyData(8000)
	for name := range small {
		a, b := float64(looked(small[name]))/float64(len(small[name])), float64(looked(large[name]))/float64(len(large[name]))
		if b > 1.5*a+2 || b > maxLooks+1 {
			t.Errorf("%s: a byte is looked at %.1f times, in eight times as much data %.1f times", name, a, b)
		}
	}
}

// TestPrettyDepth: indentation does not make a deep document quadratic.
func TestPrettyDepth(t *testing.T) {
	for name, data := range heavyData(9000) {
		if n := len(Pretty(data)); n > 16*len(data)+1000 {
			t.Errorf("%s: %d bytes became %d", name, len(data), n)
		}
	}
}
