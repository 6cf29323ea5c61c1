package transcript

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"hansard"
)

// vocabulary is every member name and every short word of the shapes.
func vocabulary() (names, words []string) {
	for _, c := range shapes {
		var v any
		if json.Unmarshal([]byte(c.data), &v) != nil {
			continue
		}
		var walk func(any)
		walk = func(v any) {
			switch v := v.(type) {
			case map[string]any:
				for name, inner := range v {
					names = append(names, name)
					walk(inner)
				}
			case []any:
				for _, inner := range v {
					walk(inner)
				}
			case string:
				words = append(words, v)
			}
		}
		walk(v)
	}
	slices.Sort(names)
	slices.Sort(words)
	return slices.Compact(names), slices.Compact(words)
}

// TestRandomShapes: objects put together at random from the names and words of all
// shapes lose no text either: half a shape, or two at once, is not misread.
func TestRandomShapes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("HANSARD_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("HANSARD_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	names, words := vocabulary()
	kinds := []string{"message", "message", "tool_call", "tool_result", "summary", "usage", "item_deleted"}
	n := 0
	var value func(depth int) any
	value = func(depth int) any {
		switch k := rng.IntN(10); {
		case k < 4 && depth > 0:
			out := map[string]any{}
			for range 1 + rng.IntN(5) {
				name := names[rng.IntN(len(names))]
				if v := value(depth - 1); name == "type" || name == "role" {
					out[name] = words[rng.IntN(len(words))]
				} else {
					out[name] = v
				}
			}
			if rng.IntN(2) == 0 {
				out["type"] = words[rng.IntN(len(words))]
			}
			return out
		case k < 6 && depth > 0:
			out := make([]any, 1+rng.IntN(3))
			for i := range out {
				out[i] = value(depth - 1)
			}
			return out
		case k == 6:
			return []any{nil, true, false, 3, 2.5, "", map[string]any{}}[rng.IntN(7)]
		}
		n++
		return fmt.Sprintf("word%dword", n)
	}
	rounds, _ := strconv.Atoi(os.Getenv("HANSARD_TORTURE"))
	for range 6000 * max(1, rounds) {
		data, err := json.Marshal(value(5))
		if err != nil {
			t.Fatal(err)
		}
		kind := kinds[rng.IntN(len(kinds))]
		nothingLost(t, Of(hansard.Event{Kind: kind, Data: data}), kind, data)
	}
}
