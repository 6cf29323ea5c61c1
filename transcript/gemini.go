package transcript

// geminiNames are the members that say what a Gemini part is, as the API and its
// Python libraries spell them.
var geminiNames = []string{"functionCall", "function_call", "functionResponse", "function_response", "inlineData", "inline_data",
	"fileData", "file_data", "executableCode", "executable_code", "codeExecutionResult", "code_execution_result"}

// geminiPart reads a part of Gemini or ADK, which has no type.
func (r *reader) geminiPart(o *object) ([]Part, bool) {
	if o.find("type", "role", "content", "tool_calls") != nil {
		return nil, false
	}
	if o.find("text").kind() == '"' {
		text, _ := o.takeText("text")
		p := Part{Type: Text, Text: text}
		if o.find("thought").isTrue() {
			p.Type = Thinking
		}
		o.dropFlags("thought")
		return r.finish(o, p), true
	}
	p, ok := r.geminiMember(o)
	if !ok {
		return nil, false
	}
	o.dropFlags("thought")
	o.dropAll("videoMetadata", "video_metadata")
	return r.finish(o, p...), true
}

func (r *reader) geminiMember(o *object) ([]Part, bool) {
	if inner, ok := o.enter("functionCall", "function_call"); ok {
		p, ok := r.call(inner, "")
		return []Part{p}, ok
	}
	if inner, ok := o.enter("functionResponse", "function_response"); ok {
		inner.drop("willContinue", "scheduling")
		return r.result(inner), inner.find("response") != nil
	}
	if inner, ok := o.enter("inlineData", "inline_data", "fileData", "file_data"); ok {
		if uri, ok := inner.takeText("fileUri", "file_uri"); ok {
			name, _ := inner.takeText("displayName", "display_name")
			mediaType, _ := inner.takeText(mediaTypes...)
			return []Part{{Type: File, Name: name, MediaType: mediaType, URL: uri}}, true
		}
		p, ok := fileOf(inner)
		return []Part{p}, ok
	}
	if inner, ok := o.enter("executableCode", "executable_code"); ok {
		code, ok := inner.takeText("code")
		name, _ := inner.takeText("language")
		id, _ := inner.takeText("id")
		return []Part{{Type: Call, ID: id, Name: "code_execution", Args: []Arg{{Name: name, Text: code}}, JSON: marshal(code)}}, ok
	}
	if inner, ok := o.enter("codeExecutionResult", "code_execution_result"); ok {
		text, _ := inner.takeText("output")
		outcome, _ := inner.takeText("outcome")
		id, _ := inner.takeText("id")
		return []Part{{Type: Result, ID: id, Name: "code_execution", Failed: outcome != "" && outcome != "OUTCOME_OK", Parts: []Part{{Type: Text, Text: text}}}}, true
	}
	return nil, false
}

// geminiEvent reads an object that holds a Gemini content: an event of ADK, or an answer
// of the API.
func (r *reader) geminiEvent(o *object) ([]Part, bool) {
	if list := o.find("candidates"); list.kind() == '[' {
		return r.answer(o, "candidates")
	}
	content, ok := r.effort.object(o.find("content"))
	if !ok || content.find("parts").kind() != '[' || o.find("type", "role") != nil {
		return nil, false
	}
	parts, ok := r.known(o.take("content"))
	if !ok {
		return nil, false
	}
	if o.word("author") == "user" {
		r.out.Role = "user"
	}
	r.author(o, "author")
	o.drop("invocationId", "invocation_id", "partial", "turnComplete", "turn_complete", "branch", "interrupted", "avgLogprobs",
		"modelVersion", "responseId")
	o.dropAll("longRunningToolIds", "long_running_tool_ids", "safetyRatings")
	if actions, ok := o.enter("actions"); ok {
		actions.drop("skipSummarization", "skip_summarization") // the other actions, if any, are shown
	}
	parts = append(parts, usageMember(o, "")...)
	return r.finish(o, parts...), true
}

// answer reads a member that is a list of objects with messages, and the rest of the
// object.
func (r *reader) answer(o *object, name string) ([]Part, bool) {
	out, ok := r.each(o.take(name), func(item value) ([]Part, bool) {
		if inner, ok := r.effort.object(item); ok && inner.find("message").kind() == '{' { // Chat's choices
			if parts, ok := r.known(inner.take("message")); ok {
				return r.finish(inner, parts...), true
			}
		}
		if parts, ok := r.known(item); ok {
			return parts, true
		}
		return []Part{unknown(item, "")}, true
	})
	if !ok {
		return nil, false
	}
	model := o.word("model")
	o.drop("model", "modelVersion", "responseId")
	out = append(out, usageMember(o, model)...)
	return r.finish(o, out...), true
}
