package transcript

import "strings"

// plumbing are members that no reader would miss as long as they are words and numbers;
// noise are members that no reader would miss whatever they are.
var (
	plumbing = []string{"type", "id", "role", "status", "object", "stop_reason", "stop_sequence", "stopReason", "finish_reason", "finishReason",
		"phase", "created", "created_at", "createdAt", "timestamp", "index", "system_fingerprint", "service_tier"}
	noise = []string{"cache_control", "cacheControl", "logprobs", "container", "providerOptions", "providerMetadata", "provider_options",
		"provider_metadata", "thoughtSignature", "thought_signature", "signature", "thinkingSignature", "encrypted_content"}
)

// dropPlumbing marks the usual members as uninteresting.
func (o *object) dropPlumbing() {
	o.drop(plumbing...)
	o.dropAll(noise...)
}

// message reads an object with a text or a content, and the objects that chat APIs
// wrap it in: {"role","content"}, {"role","parts"}, {"text"}, {"message"}.
func (r *reader) message(o *object) ([]Part, bool) {
	if o.find("tool_call_id").kind() == '"' && o.find("content") != nil {
		r.role(o)
		return r.result(o), true
	}
	body, ok := r.body(o)
	if !ok {
		return nil, false
	}
	var out []Part
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if text, ok := o.takeText(name); ok && text != "" {
			out = append(out, Part{Type: Thinking, Text: text})
		}
	}
	out = append(out, body...)
	if text, ok := o.takeText("refusal"); ok {
		out = append(out, Part{Type: Text, Text: text})
	}
	out = append(out, r.chatCalls(o)...)
	r.role(o)
	model := o.word("model")
	o.drop("model", "modelVersion", "model_version")
	o.dropPlumbing()
	r.author(o, "name")
	out = append(out, usageMember(o, model)...)
	return append(out, o.rest("more")...), true
}

// body is the content of a message. Without any content it is not a message, unless it
// calls tools.
func (r *reader) body(o *object) ([]Part, bool) {
	if v := o.find("parts"); v.kind() == '[' && !v.isEmpty() {
		o.take("parts")
		parts, ok := r.known(v)
		// Older messages of Vercel repeat their text beside the parts.
		if text := o.word("content"); text == "" || text == (Reading{Parts: parts}).PlainText() {
			o.dropAll("content")
		}
		return parts, ok
	}
	for _, name := range []string{"content", "text", "message"} {
		v := o.find(name)
		if v == nil || v.kind() != '"' && name != "content" {
			continue
		}
		if o.take(name); v.isEmpty() {
			return nil, true
		}
		return r.known(v)
	}
	return nil, o.find("tool_calls", "function_call").kind() != 0
}

// role notes the role that the data names: the outermost counts.
func (r *reader) role(o *object) {
	if role := o.word("role"); role != "" && r.out.Role == "" {
		r.out.Role = role
	}
}

// author notes who spoke, according to the data.
func (r *reader) author(o *object, member string) {
	if name := o.word(member); name != "" && r.out.Author == "" {
		r.out.Author = name
		o.dropAll(member)
	}
}

// chatCalls reads the calls beside a chat message's content.
func (r *reader) chatCalls(o *object) []Part {
	var out []Part
	if list := o.find("tool_calls"); list.kind() == '[' {
		if parts, ok := r.calls(list); ok {
			o.take("tool_calls")
			out = append(out, parts...)
		}
	}
	if one := o.find("function_call"); one.kind() == '{' {
		if parts, ok := r.calls(one); ok {
			o.take("function_call")
			out = append(out, parts...)
		}
	}
	return out
}

// covering are the members by which a summary names the events it covers.
var covering = []string{"from", "to", "first", "last", "after", "through", "range", "covers"}

// summary reads the data of an event of kind summary.
func (r *reader) summary(v value) ([]Part, bool) {
	if v.kind() == '"' {
		return []Part{{Type: Summary, Text: v.text()}}, true
	}
	o, ok := r.effort.object(v)
	text := ""
	if ok {
		text, ok = o.takeText("text", "summary", "content")
	}
	if !ok {
		parts, ok := r.known(v)
		return asSummary(parts), ok
	}
	p := Part{Type: Summary, Text: text}
	p.First, p.Last = covered(o)
	if p.Last > 0 {
		o.dropAll(covering...)
	}
	o.dropPlumbing()
	return append([]Part{p}, o.rest("more")...), true
}

// asSummary makes a summary of the first text.
func asSummary(parts []Part) []Part {
	for i := range parts {
		if parts[i].Type == Text {
			parts[i].Type = Summary
			break
		}
	}
	return parts
}

// block reads one item of a content array, or one item of a conversation, by its
// type.
func (r *reader) block(o *object) ([]Part, bool) {
	switch typ := o.word("type"); typ {
	case "":
		return nil, false
	case "text", "input_text", "output_text", "summary_text", "reasoning_text":
		text, ok := o.takeText("text")
		o.drop("state")
		return r.finish(o, Part{Type: Text, Text: text}), ok
	case "logs": // of OpenAI's code interpreter
		text, ok := o.takeText("logs")
		return r.finish(o, Part{Type: Text, Text: text}), ok
	case "refusal":
		text, ok := o.takeText("refusal")
		return r.finish(o, Part{Type: Text, Text: text}), ok
	case "thinking":
		text, _ := o.takeText("thinking", "text")
		return r.finish(o, Part{Type: Thinking, Text: text}), true
	case "redacted_thinking":
		o.dropAll("data")
		return r.finish(o, Part{Type: Thinking}), true
	case "reasoning":
		return r.finish(o, Part{Type: Thinking, Text: r.reasoning(o)}), true
	case "compaction", "compaction_summary":
		text, _ := o.takeText("text", "summary")
		return r.finish(o, Part{Type: Summary, Text: text}), true
	case "step-start", "step-finish":
		return r.finish(o, usageMember(o, "")...), true
	default:
		if parts, ok := r.media(o, typ); ok {
			return parts, true
		}
		return r.tool(o, typ)
	}
}

// finish adds to parts the members of an object that were not understood.
func (r *reader) finish(o *object, parts ...Part) []Part {
	o.dropPlumbing()
	return append(parts, o.rest("more")...)
}

// reasoning is the text of what a model thought: OpenAI's summary and content, or
// one text.
func (r *reader) reasoning(o *object) string {
	o.dropAll("details")
	o.drop("state")
	if text, ok := o.takeText("text", "reasoning"); ok {
		return text
	}
	var texts []string
	for _, name := range []string{"summary", "content"} {
		parts, ok := r.each(o.find(name), func(item value) ([]Part, bool) {
			inner, ok := r.effort.object(item)
			if !ok {
				return nil, false
			}
			text, ok := inner.takeText("text")
			inner.dropPlumbing()
			return []Part{{Text: text}}, ok && inner.left() == nil
		})
		if !ok {
			continue
		}
		o.take(name)
		for _, p := range parts {
			if p.Type == JSON { // beyond the limit of parts
				p.Text = string(p.JSON)
			}
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n\n")
}
