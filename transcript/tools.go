package transcript

import "strings"

// The records that other tools wrap around a message when they write their own session files.

// ofOtherTools reads a record of the Copilot CLI, pi, opencode or trajectories.
func (r *reader) ofOtherTools(o *object, typ string) ([]Part, bool) {
	switch {
	case strings.Contains(typ, ".") && o.find("data").kind() == '{' && o.find("id").kind() == '"':
		return r.copilot(o, typ)
	case typ == "message" && o.find("message").kind() == '{' && o.find("timestamp") != nil:
		return r.piMessage(o)
	case typ == "tool" && o.find("callID").kind() == '"' && o.find("state").kind() == '{':
		return r.opencodeTool(o)
	case o.find("ts").kind() >= '0' && o.find("ts").kind() <= '9' && o.find("content").kind() == '"':
		return r.trajectory(o, typ)
	}
	return nil, false
}

// copilot reads an event of the Copilot CLI.
func (r *reader) copilot(o *object, typ string) ([]Part, bool) {
	o.drop("parentId", "agentId")
	data, ok := o.enter("data")
	if !ok {
		return nil, false
	}
	switch typ {
	case "user.message":
		r.setRole("user")
		text, ok := data.takeText("content")
		data.dropAll("transformedContent") // the same, as the model got it
		return r.finish(o, Part{Type: Text, Text: text}), ok
	case "assistant.message":
		r.setRole("assistant")
		return r.copilotAnswer(o, data)
	case "tool.execution_complete":
		r.setRole("tool")
		p := Part{Type: Result, ID: data.takeID("toolCallId"), Failed: failed(data)}
		data.dropFlags("success")
		if body := data.take("result", "error"); body != nil {
			p.Parts = r.copilotResult(body)
		}
		return r.finish(o, p), true
	case "session.compaction_complete":
		text, ok := data.takeText("summary", "summaryContent")
		return r.finish(o, Part{Type: Summary, Text: text}), ok
	}
	return nil, false
}

func (r *reader) copilotAnswer(o, data *object) ([]Part, bool) {
	var out []Part
	if text, ok := data.takeText("reasoningText"); ok && text != "" {
		out = append(out, Part{Type: Thinking, Text: text})
	}
	if text, ok := data.takeText("content"); ok && text != "" {
		out = append(out, Part{Type: Text, Text: text})
	}
	if list := data.find("toolRequests"); !list.isEmpty() {
		calls, ok := r.calls(list)
		if !ok {
			return nil, false
		}
		data.take("toolRequests")
		out = append(out, calls...)
	}
	data.drop("outputTokens", "messageId")
	return r.finish(o, out...), len(out) > 0
}

// copilotResult is what a tool returned: its content, for the model.
func (r *reader) copilotResult(v value) []Part {
	o, ok := r.effort.object(v)
	if !ok {
		return r.literal(v)
	}
	body := o.take("content", "message")
	return r.finish(o, r.literal(body)...)
}

// piMessage reads an entry of pi or OpenClaw that is a message.
func (r *reader) piMessage(o *object) ([]Part, bool) {
	o.drop("parentId")
	message, ok := o.enter("message")
	if !ok {
		return nil, false
	}
	role := message.word("role")
	message.drop("api", "provider", "timestamp", "stopReason")
	switch role {
	case "toolResult":
		r.setRole("tool")
		p := Part{Type: Result, ID: message.takeID("toolCallId"), Failed: failed(message), Parts: r.literal(message.take("content"))}
		p.Name, _ = message.takeText("toolName")
		message.dropFlags("isError")
		return r.finish(o, p), true
	case "user", "assistant":
		r.setRole(role)
	default:
		return nil, false
	}
	parts, ok := r.known(message.find("content"))
	if !ok {
		return nil, false
	}
	message.take("content")
	model, _ := message.takeText("model")
	parts = append(parts, usageMember(message, model)...)
	return r.finish(o, parts...), true
}

// opencodeTool reads a part of opencode that is a call and, later, its result.
func (r *reader) opencodeTool(o *object) ([]Part, bool) {
	state, ok := o.enter("state")
	if !ok {
		return nil, false
	}
	call := Part{Type: Call, ID: o.takeID("callID")}
	call.Name, _ = o.takeText("tool")
	if args := state.take("input"); args != nil {
		r.setArgs(&call, args)
	}
	out := []Part{call}
	result := Part{Type: Result, ID: call.ID, Name: call.Name}
	switch state.word("status") {
	case "completed":
		result.Parts = r.literal(state.take("output"))
		out = append(out, result)
	case "error":
		result.Failed = true
		result.Parts = r.literal(state.take("error"))
		out = append(out, result)
	}
	if when, ok := state.enter("time"); ok {
		when.drop("start", "end", "compacted")
	}
	return r.finish(o, out...), true
}

// trajectory reads an event of a chapter of a trajectory.
func (r *reader) trajectory(o *object, typ string) ([]Part, bool) {
	text, _ := o.takeText("content")
	o.drop("ts", "significance", "confidence")
	switch typ {
	case "thinking":
		return r.finish(o, Part{Type: Thinking, Text: text}), true
	case "tool_call", "tool_result":
		return nil, false // whatever its shape
	}
	return r.finish(o, Part{Type: Text, Text: text}), true
}
