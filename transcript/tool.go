package transcript

import (
	"encoding/json"
	"strings"
)

// The members that a call and its result are paired by. In a result "id" is often that of
// the result itself.
var (
	callIDs   = []string{"call_id", "callId", "tool_call_id", "toolCallId", "tool_use_id", "toolUseID", "id"}
	resultIDs = []string{"tool_call_id", "tool_use_id", "call_id", "callId", "toolCallId", "toolUseID", "id"}
	toolNames = []string{"name", "toolName", "tool_name", "tool"}
	arguments = []string{"arguments", "args", "input", "parameters", "params"}
	outcomes  = []string{"output", "result", "content", "response", "text", "error"}
)

// tool reads a block that is a call, or the result of one, by its type.
func (r *reader) tool(o *object, typ string) ([]Part, bool) {
	switch typ {
	case "tool_use", "function_call", "server_tool_use", "mcp_tool_use", "custom_tool_call", "tool_call", "tool-call", "toolCall", "function":
		o.drop("namespace", "complete")
		p, ok := r.call(o, "")
		return r.finish(o, p), ok
	case "tool_result", "function_call_output", "custom_tool_call_output", "mcp_tool_result", "tool-result", "computer_call_output",
		"local_shell_call_output", "shell_call_output", "apply_patch_call_output":
		return r.result(o), true
	case "mcp_call", "web_search_call", "file_search_call", "code_interpreter_call", "computer_call", "local_shell_call", "shell_call",
		"apply_patch_call", "tool_search_call", "mcp_approval_request":
		return r.hosted(o, strings.TrimSuffix(typ, "_call"))
	case "dynamic-tool", "tool-invocation":
		return r.vercelTool(o)
	}
	switch {
	case strings.HasSuffix(typ, "_tool_result"): // of Anthropic's own tools
		return r.result(o), true
	case strings.HasPrefix(typ, "tool-"):
		return r.vercelTool(o)
	}
	return nil, false
}

// hosted reads a tool that OpenAI runs itself: call and result are one item.
func (r *reader) hosted(o *object, name string) ([]Part, bool) {
	p := Part{Type: Call, Name: name}
	if given, ok := o.takeText("name"); ok {
		p.Name = given
	}
	p.ID, _ = o.takeText("call_id", "id")
	o.drop("server_label", "container_id", "approval_request_id", "execution")
	if code, ok := o.takeText("code"); ok {
		p.Args, p.JSON = []Arg{{Name: "python", Text: code}}, marshal(code)
	} else if args := o.take("action", "arguments", "queries", "operation", "input"); args != nil {
		r.setArgs(&p, args)
	}
	back := o.find("output", "outputs", "results", "error")
	if back == nil {
		return r.finish(o, p), true
	}
	failed := o.find("output", "outputs", "results") == nil
	o.take("output", "outputs", "results", "error")
	result := Part{Type: Result, ID: p.ID, Name: p.Name, Failed: failed || o.word("status") == "failed", Parts: r.literal(back)}
	return r.finish(o, p, result), true
}

// call reads the call of a tool; name is its name if the object has none.
func (r *reader) call(o *object, name string) (Part, bool) {
	p := Part{Type: Call, Name: name}
	p.ID = o.takeID(callIDs...)
	fn := o
	if inner, ok := o.enter("function"); ok { // Chat
		fn = inner
	}
	if text, ok := fn.takeText(toolNames...); ok {
		p.Name = text
	} else if text, ok := o.takeText("function"); ok {
		p.Name = text
	}
	if p.Name == "" {
		return p, false
	}
	if args := fn.take(arguments...); args != nil {
		r.setArgs(&p, args)
	}
	return p, true
}

// takeID is the id of a call: a string or a number.
func (o *object) takeID(names ...string) string {
	id := o.find(names...)
	switch {
	case id.kind() == '"':
		return o.take(names...).text()
	case id.kind() == '-' || id.kind() >= '0' && id.kind() <= '9':
		return string(o.take(names...))
	}
	return ""
}

// setArgs sets the arguments, one by one if they have names. Chat APIs give them as JSON
// in a string.
func (r *reader) setArgs(p *Part, v value) {
	if v.kind() == '"' {
		text := v.text()
		inner := strings.TrimSpace(text)
		if !strings.HasPrefix(inner, "{") || !json.Valid([]byte(inner)) {
			p.JSON = json.RawMessage(v)
			if text != "" {
				p.Args = []Arg{{Text: text}}
			}
			return
		}
		v = value(inner)
	}
	p.JSON = json.RawMessage(v)
	o, ok := r.effort.object(v)
	if !ok || len(o.names) > maxArgs {
		p.Args = []Arg{{Text: Pretty(json.RawMessage(v)), JSON: true}}
		return
	}
	for i, name := range o.names {
		p.Args = append(p.Args, Arg{Name: name, Text: o.values[i].shown(), JSON: o.values[i].kind() != '"'})
	}
}

// calls reads the data of an event of kind tool_call, or a list of calls, in unspecified
// shapes: an object with a name, whose other members are the arguments.
func (r *reader) calls(v value) ([]Part, bool) {
	if v.kind() == '[' {
		return r.each(v, func(item value) ([]Part, bool) {
			if item.kind() != '{' {
				return nil, false
			}
			return r.calls(item)
		})
	}
	o, ok := r.effort.object(v)
	if !ok {
		return nil, false
	}
	named := o.find(arguments...) != nil
	if fn, ok := r.effort.object(o.find("function")); ok {
		named = named || fn.find(arguments...) != nil
	}
	p, ok := r.call(o, "")
	if !ok {
		return nil, false
	}
	o.dropPlumbing()
	if left := o.left(); left != nil && !named {
		r.setArgs(&p, left)
		return []Part{p}, true
	}
	return append([]Part{p}, o.rest("more")...), true
}

// results reads the data of an event of kind tool_result, in any shape.
func (r *reader) results(v value) []Part {
	switch v.kind() {
	case '[':
		if parts, ok := r.resultList(v); ok {
			return parts
		}
	case '{':
		if o, ok := r.effort.object(v); ok {
			return r.result(o)
		}
	}
	return []Part{{Type: Result, Parts: r.literal(v)}}
}

// resultList reads a list of results, each with the id of its call.
func (r *reader) resultList(v value) ([]Part, bool) {
	if v.isEmpty() {
		return nil, false
	}
	return r.each(v, func(item value) ([]Part, bool) {
		o, ok := r.effort.object(item)
		if !ok || o.find(resultIDs...) == nil {
			return nil, false
		}
		return r.result(o), true
	})
}

// result reads the result of a tool.
func (r *reader) result(o *object) []Part {
	p := Part{Type: Result}
	p.ID = o.takeID(resultIDs...)
	p.Name, _ = o.takeText(toolNames...)
	p.Failed = failed(o)
	o.dropFlags("is_error", "isError", "success")
	o.drop("caller")
	o.dropPlumbing()
	if body := o.find(outcomes...); body != nil {
		o.take(outcomes...)
		p.Parts = r.outcome(&p, body)
		p.Parts = append(p.Parts, o.rest("more")...)
	} else if left := o.left(); left != nil {
		p.Parts = []Part{unknown(left, "")}
	}
	return []Part{p}
}

func failed(o *object) bool {
	if o.find("is_error", "isError").isTrue() || o.find("success").kind() == 'f' {
		return true
	}
	if err := o.find("error"); !err.isEmpty() && err.kind() != 'f' {
		return true
	}
	switch o.word("status", "state") {
	case "error", "failed", "failure", "incomplete", "output-error":
		return true
	}
	return false
}

// outcome reads what a tool returned: it tries the wrappers of the APIs, then literal.
func (r *reader) outcome(p *Part, v value) []Part {
	if v.kind() == '"' {
		return r.textOutcome(p, v)
	}
	o, ok := r.effort.object(v)
	if !ok {
		return r.literal(v)
	}
	typ := o.word("type")
	switch {
	case o.find("value") != nil && (typ == "text" || typ == "json" || typ == "content" || strings.HasPrefix(typ, "error-")): // Vercel
		p.Failed = p.Failed || strings.HasPrefix(typ, "error-")
		body := o.take("value")
		return r.finish(o, r.literal(body)...)
	case o.find("content").kind() == '[' && typ == "": // MCP
		p.Failed = p.Failed || o.find("isError").isTrue()
		o.dropFlags("isError")
		o.dropAll("_meta")
		body := o.take("content")
		return r.finish(o, r.literal(body)...)
	case len(o.names) == 1 && o.find("output", "result", "error") != nil: // Gemini
		p.Failed = p.Failed || o.names[0] == "error"
		return r.literal(o.values[0])
	}
	return r.literal(v)
}

// textOutcome is a text, shown literally. Codex writes some results as JSON in a
// string: the output, and how the command ended.
func (r *reader) textOutcome(p *Part, v value) []Part {
	text := v.text()
	if strings.HasPrefix(text, `{"output":`) && json.Valid([]byte(text)) {
		o, ok := r.effort.object(value(strings.TrimSpace(text)))
		if ok && len(o.names) == 2 && o.find("output").kind() == '"' {
			if meta, ok := o.enter("metadata"); ok {
				code := meta.find("exit_code")
				p.Failed = p.Failed || code != nil && string(code) != "0"
				out, _ := o.takeText("output")
				return append([]Part{{Type: Text, Text: out}}, o.rest("metadata")...)
			}
		}
	}
	if text == "" {
		return nil
	}
	return []Part{{Type: Text, Text: text}}
}

// literal reads content that is shown as it is: text, blocks, or JSON.
func (r *reader) literal(v value) []Part {
	if v.isEmpty() {
		return nil
	}
	if v.kind() == '"' || v.kind() == '[' {
		if parts, ok := r.known(v); ok {
			return parts
		}
	}
	if o, ok := r.effort.object(v); ok && o.word("type") != "" {
		if parts, ok := r.known(v); ok {
			return parts
		}
	}
	return []Part{unknown(v, "")}
}
