package transcript

import (
	"encoding/json"
	"math"
	"strconv"

	"hansard"
)

// Tokens are the token counts that a model reports. Zero means not reported.
type Tokens struct {
	Input      int64  `json:"input,omitempty"`
	Output     int64  `json:"output,omitempty"`
	CacheRead  int64  `json:"cache_read,omitempty"`
	CacheWrite int64  `json:"cache_write,omitempty"`
	Reasoning  int64  `json:"reasoning,omitempty"`
	Total      int64  `json:"total,omitempty"`
	Model      string `json:"model,omitempty"`
}

// counters are the names of the same counts in the APIs.
var counters = []struct {
	names []string
	count func(*Tokens) *int64
}{
	{[]string{"input_tokens", "inputTokens", "prompt_tokens", "promptTokens", "promptTokenCount", "prompt_token_count", "input"}, func(t *Tokens) *int64 { return &t.Input }},
	{[]string{"output_tokens", "outputTokens", "completion_tokens", "completionTokens", "candidatesTokenCount", "candidates_token_count", "output"}, func(t *Tokens) *int64 { return &t.Output }},
	{[]string{"cache_read_input_tokens", "cached_input_tokens", "cachedInputTokens", "cacheReadInputTokens", "cachedContentTokenCount", "cached_content_token_count", "cached_tokens", "cacheRead", "cached"}, func(t *Tokens) *int64 { return &t.CacheRead }},
	{[]string{"cache_creation_input_tokens", "cacheCreationInputTokens", "cache_write_input_tokens", "cacheWrite"}, func(t *Tokens) *int64 { return &t.CacheWrite }},
	{[]string{"reasoning_output_tokens", "reasoning_tokens", "reasoningTokens", "thoughtsTokenCount", "thoughts_token_count", "thoughts"}, func(t *Tokens) *int64 { return &t.Reasoning }},
	{[]string{"total_tokens", "totalTokens", "totalTokenCount", "total_token_count", "total"}, func(t *Tokens) *int64 { return &t.Total }},
}

// finer are members of a usage that break down the same counts.
var finer = []string{"cache_creation", "server_tool_use", "service_tier", "inference_geo", "iterations", "speed", "promptTokensDetails", "candidatesTokensDetails",
	"prompt_tokens_details", "candidates_tokens_details", "toolUsePromptTokenCount", "trafficType", "tool", "inputTokenDetails", "outputTokenDetails", "raw"}

// usageOf reads a usage; without a count it is not one.
func usageOf(o *object) ([]Part, bool) {
	t := &Tokens{}
	found := t.count(o)
	for _, name := range []string{"input_tokens_details", "output_tokens_details", "prompt_tokens_details", "completion_tokens_details"} {
		if inner, ok := o.enter(name); ok {
			t.count(inner)
			inner.drop("audio_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens", "text_tokens", "image_tokens")
		}
	}
	if !found {
		return nil, false
	}
	t.Model, _ = o.takeText("model")
	o.dropAll(finer...)
	o.dropPlumbing()
	return append([]Part{{Type: Usage, Tokens: t}}, o.rest("usage")...), true
}

// count adds up the counters of an object.
func (t *Tokens) count(o *object) bool {
	found := false
	for _, c := range counters {
		for _, name := range c.names {
			if n, ok := number(o.find(name)); ok {
				o.take(name)
				*c.count(t) += n
				found = true
			}
		}
	}
	return found
}

// usageMember reads the usage that a message has with it.
func usageMember(o *object, model string) []Part {
	for _, name := range []string{"usage", "usageMetadata", "usage_metadata", "totalUsage"} {
		inner, ok := o.effort.object(o.find(name))
		if !ok {
			continue
		}
		if parts, ok := usageOf(inner); ok {
			o.take(name)
			if parts[0].Tokens.Model == "" {
				parts[0].Tokens.Model = model
			}
			return parts
		}
	}
	return nil
}

// number is a count: a number that is not negative.
func number(v value) (int64, bool) {
	if c := v.kind(); c < '0' || c > '9' {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f > math.MaxInt64/1e6 {
		return 0, false
	}
	return int64(f), true
}

// covered is the range of events that a summary names.
func covered(o *object) (first, last hansard.Seq) {
	in := o
	if r := o.find("range", "covers"); r.kind() == '[' {
		var ends []hansard.Seq
		if json.Unmarshal(r, &ends) != nil || len(ends) != 2 {
			return 0, 0
		}
		return ends[0], ends[1]
	} else if inner, ok := o.effort.object(r); ok {
		in = inner
	}
	from, ok := number(in.find("from", "first", "after"))
	to, ok2 := number(in.find("to", "last", "through"))
	if !ok || !ok2 {
		return 0, 0
	}
	return hansard.Seq(from), hansard.Seq(to)
}
