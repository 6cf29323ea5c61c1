package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"hansard"
)

const needle = "NEEDLE"

// everything is all that parts say, in any of their members.
func everything(parts []Part) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintln(&b, p.Text, p.ID, p.Name, p.MediaType, p.URL, p.Label, string(p.JSON))
		if p.Tokens != nil {
			fmt.Fprintln(&b, *p.Tokens)
		}
		for _, a := range p.Args {
			fmt.Fprintln(&b, a.Name, a.Text)
		}
		b.WriteString(everything(p.Parts))
	}
	return b.String()
}

// notRead are the members that nobody reads in a transcript: the raw event has
// them. Any other that a shape leaves out is a fault.
var notRead = slices.Concat(plumbing, noise, claudeMembers, finer, []string{
	"signature", "encrypted_content", "detail", "server_label", "model", "modelVersion", "invocation_id", "state",
	"resultDisplay", "subtype", "outcome", "parentId", "agentId", "transformedContent",
})

// notHere are places of single shapes that need not be read.
var notHere = []string{
	"codex tokens payload info total_token_usage added", // all calls so far
	"thinking and call data",                            // of redacted thinking
	"file part parts mediaType",                         // the URL has another, and wins
	"chat audio content input_audio format",
}

// variants gives a value with a needle in every place where one may be: instead of
// each string, and as one more member of each object. The path is of member names.
func variants(v any, path []string, yield func(path []string, changed func() any)) {
	switch v := v.(type) {
	case map[string]any:
		yield(append(path, "added"), func() any {
			v["zz"] = needle
			return v
		})
		delete(v, "zz")
		for name, inner := range v {
			at := append(slices.Clone(path), name)
			if _, ok := inner.(string); ok {
				yield(at, func() any { v[name] = needle; return v })
				v[name] = inner
				continue
			}
			variants(inner, at, yield)
		}
	case []any:
		for i, inner := range v {
			if _, ok := inner.(string); ok {
				yield(path, func() any { v[i] = needle; return v })
				v[i] = inner
				continue
			}
			variants(inner, path, yield)
		}
	}
}

// TestNothingIsLost: whatever string is in an event in a shape we know, and
// whatever member it has besides, is in its parts, unless it is on a short list of
// what nobody reads.
func TestNothingIsLost(t *testing.T) {
	tried := 0
	for _, c := range shapes {
		if c.kind == hansard.KindTurn || c.kind == KindDeleted {
			continue // records of the store's own
		}
		var whole any
		dec := json.NewDecoder(strings.NewReader(c.data))
		dec.UseNumber()
		if err := dec.Decode(&whole); err != nil {
			continue // a name twice
		}
		variants(whole, nil, func(path []string, change func() any) {
			if slices.ContainsFunc(path, func(name string) bool { return slices.Contains(noise, name) }) || len(path) > 0 && slices.Contains(notRead, path[len(path)-1]) {
				return
			}
			if slices.Contains(notHere, strings.Join(append([]string{c.name}, path...), " ")) {
				return
			}
			change()
			data, err := json.Marshal(whole)
			if err != nil {
				t.Fatal(err)
			}
			tried++
			if !bytes.Contains(data, []byte(needle)) {
				t.Fatalf("%s: no needle at %v: %s", c.name, path, data)
			}
			if got := Of(hansard.Event{Kind: c.kind, Data: data}); got.Author != needle && !strings.Contains(everything(got.Parts), needle) {
				t.Errorf("%s: what is at %v is lost: %s\n became %s", c.name, path, data, brief(got.Parts))
			}
		})
	}
	if tried < 400 {
		t.Errorf("only %d places were tried", tried)
	}
}
