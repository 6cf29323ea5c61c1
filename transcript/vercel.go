package transcript

import "strings"

// vercelTool reads a part of the Vercel AI SDK that is a call and, later, its result:
// "tool-NAME" with a state, or an invocation of older versions.
func (r *reader) vercelTool(o *object) ([]Part, bool) {
	in := o
	if inner, ok := o.enter("toolInvocation"); ok {
		in = inner
	}
	if in.find("toolCallId").kind() != '"' {
		return nil, false
	}
	name := strings.TrimPrefix(o.word("type"), "tool-")
	in.drop("state", "step", "preliminary", "providerExecuted", "title")
	state := in.word("state")
	call, ok := r.call(in, name)
	if !ok {
		return nil, false
	}
	parts := []Part{call}
	result := Part{Type: Result, ID: call.ID, Name: call.Name, Failed: state == "output-error"}
	if text, ok := in.takeText("errorText"); ok {
		result.Failed = true
		parts = append(parts, result.with(Part{Type: Text, Text: text}))
	} else if body := in.take("output", "result"); body != nil {
		result.Parts = r.outcome(&result, body)
		parts = append(parts, result)
	} else if state == "output-available" || state == "result" {
		parts = append(parts, result) // an empty result
	}
	return r.finish(o, parts...), true
}

func (p Part) with(parts ...Part) Part {
	p.Parts = parts
	return p
}
