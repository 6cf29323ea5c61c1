package engine

import (
	"bytes"
	"encoding/json"
	"maps"

	"hansard"
)

// CloneMeta copies metadata, so that the caller's memory stays the caller's.
func CloneMeta(m hansard.Meta) hansard.Meta {
	return hansard.Meta{Title: m.Title, Labels: maps.Clone(m.Labels), State: bytes.Clone(m.State)}
}

// ClonePatch is CloneMeta for a patch, which may be nil.
func ClonePatch(p *hansard.Patch) *hansard.Patch {
	if p == nil {
		return nil
	}
	c := hansard.Patch{Labels: maps.Clone(p.Labels), State: bytes.Clone(p.State)}
	if p.Title != nil {
		title := *p.Title
		c.Title = &title
	}
	for name, value := range c.Labels {
		if value != nil {
			v := *value
			c.Labels[name] = &v
		}
	}
	return &c
}

// ApplyPatch returns m changed by p, and an error if the result exceeds a limit.
func ApplyPatch(m hansard.Meta, p *hansard.Patch) (hansard.Meta, error) {
	if p == nil {
		return m, nil
	}
	if p.Title != nil {
		m.Title = *p.Title
	}
	if len(p.Labels) > 0 {
		labels := make(map[string]string, len(m.Labels)+len(p.Labels))
		for k, v := range m.Labels {
			labels[k] = v
		}
		for k, v := range p.Labels {
			if v == nil {
				delete(labels, k)
			} else {
				labels[k] = *v
			}
		}
		if err := checkLabelCount(labels); err != nil {
			return m, err
		}
		m.Labels = labels
	}
	if len(p.State) > 0 {
		state, err := mergePatch(m.State, p.State)
		if err != nil {
			return m, err
		}
		if len(state) > hansard.MaxStateBytes {
			return m, tooLarge("state", len(state), hansard.MaxStateBytes, "bytes")
		}
		m.State = state
	}
	return m, nil
}

// mergePatch implements RFC 7396. Numbers keep their digits; the members of objects
// are sorted, so that every engine gets the same bytes.
func mergePatch(target, patch json.RawMessage) (json.RawMessage, error) {
	changes, err := decodeState(patch)
	if err != nil {
		return nil, err
	}
	old, err := decodeState(target)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(merge(old, changes)); err != nil {
		return nil, invalid("state", "%v", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func decodeState(state json.RawMessage) (v any, err error) {
	if len(state) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(state))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, invalid("state", "%v", err)
	}
	return v, nil
}

func merge(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	members, ok := target.(map[string]any)
	if !ok {
		members = make(map[string]any, len(changes))
	}
	for k, v := range changes {
		if v == nil {
			delete(members, k)
		} else {
			members[k] = merge(members[k], v)
		}
	}
	return members
}
