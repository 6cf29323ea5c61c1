package transcript

import (
	"fmt"
	"slices"
	"strings"
)

// toolUseResult is the member in which Claude Code keeps a second, structured form of a result.
const toolUseResult = "toolUseResult"

// envelope reads what a tool wraps around a message when it writes its own session
// file.
func (r *reader) envelope(o *object) ([]Part, bool) {
	typ := o.word("type")
	if typ != "" {
		if parts, ok := r.ofOtherTools(o, typ); ok {
			return parts, true
		}
		o.forget()
	}
	switch {
	case o.find("payload").kind() == '{' && typ != "":
		return r.codex(o, typ)
	case typ != "" && (o.find("uuid", "sessionId", "parentUuid", "leafUuid") != nil || o.find("message").kind() == '{'):
		return r.claudeCode(o, typ)
	case (typ == "user" || typ == "gemini" || typ == "info" || typ == "error" || typ == "warning") && o.find("content") != nil:
		return r.geminiCLI(o, typ)
	case o.word("object") == "response" && o.find("output").kind() == '[':
		o.drop("parallel_tool_calls", "tool_choice", "store", "temperature", "top_p", "truncation", "previous_response_id", "max_output_tokens", "user", "background")
		o.dropAll("output_text", "tools", "text", "reasoning")
		return r.answer(o, "output")
	case strings.HasPrefix(o.word("object"), "chat.completion") && o.find("choices").kind() == '[':
		return r.answer(o, "choices")
	}
	return r.geminiEvent(o)
}

// claudeMembers are what Claude Code and Qwen Code write around every message.
var claudeMembers = []string{"uuid", "parentUuid", "logicalParentUuid", "sessionId", "cwd", "version", "gitBranch", "isSidechain", "userType", "entrypoint",
	"sessionKind", "promptSource", "promptId", "isMeta", "slug", "requestId", "level", "isVisibleInTranscriptOnly", "isCompactSummary", "sourceToolUseID",
	"sourceToolAssistantUUID", "thinkingMetadata", "permissionMode", "agentId", "teamName", "isApiErrorMessage", "leafUuid", "forkedFrom", "provenance",
	"sourceToolAssistantUuid", "todos", "imagePasteIds"}

// claudeCode reads a record of Claude Code, or of Qwen Code, whose messages are those of
// Gemini.
func (r *reader) claudeCode(o *object, typ string) ([]Part, bool) {
	o.drop(claudeMembers...)
	switch typ {
	case "user", "assistant", "tool_result":
		return r.claudeMessage(o, typ)
	case "summary":
		text, ok := o.takeText("summary")
		return r.finish(o, Part{Type: Summary, Text: text}), ok
	case "system":
		r.setRole("system")
		if o.word("subtype") == "compact_boundary" {
			text := compaction(o)
			o.drop("subtype", "content")
			return r.finish(o, Part{Type: Summary, Text: text}), true
		}
		text, ok := o.takeText("content")
		return r.finish(o, Part{Type: Text, Text: text}), ok
	case "attachment":
		if inner, ok := o.enter("attachment"); ok && inner.word("type") == "queued_command" {
			if text, ok := inner.takeText("prompt"); ok {
				r.setRole("user")
				return r.finish(o, Part{Type: Text, Text: text}), true
			}
		}
	}
	return nil, false
}

func (r *reader) setRole(role string) {
	if r.out.Role == "" {
		r.out.Role = role
	}
}

func (r *reader) claudeMessage(o *object, typ string) ([]Part, bool) {
	message := o.find("message")
	if message.kind() != '{' {
		return nil, false
	}
	summary := o.find("isCompactSummary").isTrue()
	r.out.Aside = o.find("isMeta").isTrue()
	if typ == "tool_result" {
		typ = "tool"
	}
	r.setRole(typ)
	parts, ok := r.known(o.take("message"))
	if !ok {
		return nil, false
	}
	parts = append(parts, usageMember(o, "")...)
	o.drop("model")
	if summary {
		parts = asSummary(parts)
	}
	if back := o.find(toolUseResult); back != nil {
		o.take(toolUseResult)
		if !r.says(parts, back) {
			parts = append(parts, unknown(back, toolUseResult))
		}
	}
	return r.finish(o, parts...), true
}

// says reports whether the parts contain everything in a structured result, so that the
// result only repeats their text.
func (r *reader) says(parts []Part, back value) bool {
	texts := []string{back.text()}
	if o, ok := r.effort.object(back); ok {
		texts = []string{o.word("stdout"), o.word("stderr")}
		o.drop("interrupted", "isImage", "noOutputExpected")
		for _, name := range []string{"stdout", "stderr"} {
			o.takeText(name)
		}
		if o.left() != nil {
			return false
		}
	} else if back.kind() != '"' {
		return false
	}
	var have strings.Builder
	for _, p := range parts {
		for _, inner := range p.Parts {
			have.WriteString(inner.Text)
		}
	}
	return !slices.ContainsFunc(texts, func(text string) bool {
		text = strings.TrimPrefix(strings.TrimSpace(text), "Error: ")
		return !strings.Contains(have.String(), text)
	})
}

// compaction describes a compaction boundary.
func compaction(o *object) string {
	text := "The conversation was compacted"
	meta, ok := o.enter("compactMetadata", "compact_metadata")
	if !ok {
		return text + "."
	}
	if trigger, ok := meta.takeText("trigger"); ok {
		text += " (" + trigger + ")"
	}
	if before, ok := number(meta.find("preTokens", "pre_tokens")); ok {
		text += fmt.Sprintf(": %d tokens before", before)
		if after, ok := number(meta.find("postTokens", "post_tokens")); ok {
			text += fmt.Sprintf(", %d after", after)
		}
	}
	meta.drop("preTokens", "pre_tokens", "postTokens", "post_tokens", "durationMs", "duration_ms", "messagesSummarized", "cumulativeDroppedTokens")
	return text + "."
}

// codex reads a line of a Codex rollout. The records for the user interface mostly repeat
// those for the model: they stay JSON.
func (r *reader) codex(o *object, typ string) ([]Part, bool) {
	o.drop("timestamp", "type", "ordinal", "metadata")
	payload := o.find("payload")
	inner, ok := r.effort.object(payload)
	if !ok {
		return nil, false
	}
	label := typ
	switch typ {
	case "response_item":
		r.depth++
		defer func() { r.depth-- }()
		parts, ok := r.object(inner)
		if ok {
			o.take("payload")
			r.out.Aside = codexAside(parts)
			return append(parts, o.rest("more")...), true
		}
		label = inner.word("type")
	case "compacted":
		text, _ := inner.takeText("message")
		inner.drop("window_number", "previous_window_id", "window_id")
		o.take("payload")
		return append([]Part{{Type: Summary, Text: text}}, append(inner.rest("more"), o.rest("more")...)...), true
	case "event_msg":
		label = "event_msg " + inner.word("type")
		if inner.word("type") == "token_count" {
			if info, ok := inner.enter("info"); ok {
				if last, ok := info.enter("last_token_usage"); ok {
					parts, ok := usageOf(last)
					info.dropAll("total_token_usage", "model_context_window")
					inner.dropAll("type", "rate_limits")
					o.take("payload")
					return append(append(parts, inner.rest("more")...), o.rest("more")...), ok
				}
			}
		}
	}
	o.take("payload")
	return append([]Part{unknown(payload, label)}, o.rest("more")...), true
}

// codexAside reports whether the parts are what Codex itself says to the model in the
// user's name.
func codexAside(parts []Part) bool {
	return len(parts) > 0 && parts[0].Type == Text && isAside(parts[0].Text)
}

// geminiCLI reads a message of the Gemini CLI's file.
func (r *reader) geminiCLI(o *object, typ string) ([]Part, bool) {
	switch typ {
	case "user":
		r.setRole("user")
	case "gemini":
		r.setRole("assistant")
	default:
		r.setRole("system")
	}
	var out []Part
	if list := o.find("thoughts"); list != nil {
		thoughts, ok := r.each(list, r.geminiThought)
		if !ok {
			return nil, false
		}
		o.take("thoughts")
		out = thoughts
	}
	if content := o.take("content", "displayContent"); !content.isEmpty() {
		parts, ok := r.known(content)
		if !ok {
			return nil, false
		}
		out = append(out, parts...)
	}
	if list := o.find("toolCalls"); list.kind() == '[' {
		parts, ok := r.each(list, r.geminiCall)
		if !ok {
			return nil, false
		}
		o.take("toolCalls")
		out = append(out, parts...)
	}
	model := o.word("model")
	o.drop("model")
	if tokens, ok := r.effort.object(o.find("tokens")); ok {
		if parts, ok := usageOf(tokens); ok {
			o.take("tokens")
			parts[0].Tokens.Model = model
			out = append(out, parts...)
		}
	}
	return r.finish(o, out...), true
}

func (r *reader) geminiThought(v value) ([]Part, bool) {
	o, ok := r.effort.object(v)
	if !ok {
		return nil, false
	}
	subject, _ := o.takeText("subject")
	text, _ := o.takeText("description")
	if subject != "" {
		text = "**" + subject + "** " + text
	}
	return r.finish(o, Part{Type: Thinking, Text: text}), true
}

// geminiCall reads a call that has its result with it.
func (r *reader) geminiCall(v value) ([]Part, bool) {
	o, ok := r.effort.object(v)
	if !ok {
		return nil, false
	}
	call, ok := r.call(o, "")
	if !ok {
		return nil, false
	}
	out := []Part{call}
	if back := o.take("result"); back != nil {
		result := Part{Type: Result, ID: call.ID, Name: call.Name, Failed: o.word("status") == "error", Parts: r.literal(back)}
		if inner := result.Parts; len(inner) == 1 && inner[0].Type == Result && inner[0].Name == call.Name { // its functionResponse
			result.Parts, result.Failed = inner[0].Parts, result.Failed || inner[0].Failed
		}
		out = append(out, result)
	}
	o.drop("displayName", "description", "renderOutputAsMarkdown", "agentId")
	if o.find("resultDisplay").kind() == '"' {
		o.dropAll("resultDisplay") // the same result, for people
	}
	return r.finish(o, out...), true
}
