package engine

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"hansard"
)

// CloneMeta copies metadata, so that the copy shares no memory with the caller's.
func CloneMeta(m hansard.Meta) hansard.Meta {
	return hansard.Meta{Title: m.Title, Labels: maps.Clone(m.Labels), State: bytes.Clone(m.State)}
}

// ClonePatch is CloneMeta for a patch, which may be nil.
func ClonePatch(p *hansard.Patch) *hansard.Patch {
	if p == nil {
		return nil
	}
	c := hansard.Patch{Labels: maps.Clone(p.Labels), State: bytes.Clone(p.State), StateOps: slices.Clone(p.StateOps)}
	for i := range c.StateOps {
		c.StateOps[i].Value = bytes.Clone(c.StateOps[i].Value)
	}
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

// ApplyPatch returns m changed by p, which has been checked. Engines call it to decide
// whether p is stored: it is an error if the result exceeds a limit, or if an operation on
// the state can't be applied. A test that fails is a [hansard.StateTestError].
func ApplyPatch(session hansard.SessionID, m hansard.Meta, p *hansard.Patch) (hansard.Meta, error) {
	return applyPatch(m, p, func(state any) (any, error) { return applyOps(session, state, p.StateOps) })
}

// ReplayPatch returns m changed by p, which was stored: its tests passed then, and are not
// run again. If p can be applied, the result is that of ApplyPatch. If a patch before it
// was lost with a damaged part of the log, some of its operations may no longer have a
// place to apply to. These are skipped, so that the session can be used and copied.
func ReplayPatch(m hansard.Meta, p *hansard.Patch) (hansard.Meta, error) {
	return applyPatch(m, p, func(state any) (any, error) { return replayOps(state, p.StateOps), nil })
}

func applyPatch(m hansard.Meta, p *hansard.Patch, ops func(state any) (any, error)) (hansard.Meta, error) {
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
	var state json.RawMessage
	var err error
	switch {
	case len(p.State) > 0:
		state, err = mergePatch(m.State, p.State)
	case len(p.StateOps) > 0:
		state, err = changed(m.State, ops)
	default:
		return m, nil
	}
	if err != nil {
		return m, err
	}
	m.State, err = limited(state)
	return m, err
}

// mergePatch implements RFC 7396.
func mergePatch(target, patch json.RawMessage) (json.RawMessage, error) {
	changes, err := decodeState(patch)
	if err != nil {
		return nil, err
	}
	return changed(target, func(old any) (any, error) { return merge(old, changes), nil })
}

// changed is a document after a change of its decoded value. Numbers keep their digits; the
// members of objects are sorted, so that every engine gets the same bytes.
func changed(state json.RawMessage, change func(any) (any, error)) (json.RawMessage, error) {
	old, err := decodeState(state)
	if err != nil {
		return nil, err
	}
	now, err := change(old)
	if err != nil {
		return nil, err
	}
	return encodeState(now)
}

// limited returns a changed state, or an error if it exceeds a limit. Each change is within
// the limits; the sum of many may not be.
func limited(state json.RawMessage) (json.RawMessage, error) {
	if len(state) > hansard.MaxStateBytes {
		return nil, tooLarge("state", len(state), hansard.MaxStateBytes, "bytes")
	}
	if n := depth(state); n > hansard.MaxStateDepth {
		return nil, tooLarge("state", n, hansard.MaxStateDepth, "levels")
	}
	return state, nil
}

func encodeState(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
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
