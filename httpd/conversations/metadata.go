package conversations

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"hansard"
)

// The limits of the API on metadata, in characters.
const (
	maxPairs      = 16
	maxKeyChars   = 64
	maxValueChars = 512
)

// metadata are a conversation's pairs. They are the session's labels, so that
// hansard ls --label finds a conversation by them, and a session's labels are
// metadata. What a label can't hold (a value over 256 bytes, an equals sign in a
// name) is in the state document, at openai.metadata.
type metadata map[string]string

// longState is the part of a session's state that belongs to the API.
type longState struct {
	OpenAI struct {
		Metadata map[string]string `json:"metadata"`
	} `json:"openai"`
}

// metadataOf are the metadata of a session.
func metadataOf(info *hansard.Info) metadata {
	all := metadata(maps.Clone(info.Labels))
	if all == nil {
		all = metadata{}
	}
	maps.Copy(all, longOf(info))
	return all
}

// longOf are the pairs in the state; none if the state has something else there.
func longOf(info *hansard.Info) map[string]string {
	var s longState
	if json.Unmarshal(info.State, &s) != nil {
		return nil
	}
	return s.OpenAI.Metadata
}

// json writes the pairs, sorted by name.
func (m metadata) json() []byte {
	out := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, quote(name)...), ':'), quote(m[name])...)
	}
	return append(out, '}')
}

// parseMetadata checks the metadata of a request; absent and null mean empty.
func parseMetadata(body *object) (metadata, error) {
	m := metadata{}
	if !body.given("metadata") {
		return m, nil
	}
	o, ok := objectOf(body.value("metadata"))
	if !ok {
		return nil, wrongType("metadata", "an object", body.value("metadata"))
	}
	if len(o.names) > maxPairs {
		return nil, badRequest("metadata", "object_above_max_properties",
			"Invalid 'metadata': too many properties. Expected an object with at most %d properties, but got %d instead.", maxPairs, len(o.names))
	}
	for _, name := range o.names {
		param := fmt.Sprintf("metadata.%.64s", name)
		value, ok := o.text(name)
		switch {
		case !ok:
			return nil, wrongType(param, "a string", o.value(name))
		case name == "":
			return nil, badRequest("metadata", "invalid_value", "Invalid 'metadata': a key is empty.")
		case utf8.RuneCountInString(name) > maxKeyChars:
			return nil, badRequest(param, "string_above_max_length",
				"Invalid key in 'metadata': string too long. Expected a string with maximum length %d.", maxKeyChars)
		case utf8.RuneCountInString(value) > maxValueChars:
			return nil, badRequest(param, "string_above_max_length",
				"Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.",
				param, maxValueChars, utf8.RuneCountInString(value))
		}
		m[name] = value
	}
	return m, nil
}

// fitsLabel reports whether a pair can be a label.
func fitsLabel(name, value string) bool {
	return len(name) <= hansard.MaxLabelBytes && len(value) <= hansard.MaxLabelBytes && !strings.ContainsAny(name, "=\x00") && !strings.Contains(value, "\x00")
}

// replacing is the patch that makes these pairs a session's metadata, whatever it had
// before, but for the labels that are fixed; nil if it has them already.
func (m metadata) replacing(info *hansard.Info, fixed map[string]string) (*hansard.Patch, error) {
	labels := make(map[string]*string)
	long := make(map[string]*string)
	oldLong := longOf(info)
	for name, value := range info.Labels {
		if is, ok := fixed[name]; !ok || is != value {
			labels[name] = nil
		}
	}
	for name := range oldLong {
		long[name] = nil
	}
	keeps := false // the state has pairs after the patch
	for name, value := range m {
		if fitsLabel(name, value) {
			labels[name] = &value
		} else {
			long[name] = &value
			keeps = true
		}
	}
	for name, value := range labels {
		if old, ok := info.Labels[name]; ok && value != nil && *value == old {
			delete(labels, name)
		}
	}
	for name, value := range long {
		if old, ok := oldLong[name]; ok && value != nil && *value == old {
			delete(long, name)
		}
	}
	if len(labels) == 0 && len(long) == 0 {
		return nil, nil
	}
	p := &hansard.Patch{}
	if len(labels) > 0 {
		p.Labels = labels
	}
	if len(long) > 0 {
		if state := trim(info.State); len(state) > 0 && state[0] != '{' && string(state) != "null" {
			return nil, badRequest("metadata", "state_in_use",
				"Values over %d bytes are kept in the session's state, and its state is not an object.", hansard.MaxLabelBytes)
		}
		state := map[string]any{"metadata": long}
		if !keeps {
			state["metadata"] = nil
		}
		p.State, _ = json.Marshal(map[string]any{"openai": state}) // strings: can't fail
	}
	return p, nil
}
