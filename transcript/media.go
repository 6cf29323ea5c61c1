package transcript

import "strings"

// media reads pictures, sounds and documents.
func (r *reader) media(o *object, typ string) ([]Part, bool) {
	switch typ {
	case "image", "image_url", "input_image", "computer_screenshot":
		p, ok := imageOf(o)
		return r.finish(o, p), ok
	case "image_generation_call":
		o.drop("background", "output_format", "quality", "size")
		call := Part{Type: Call, ID: o.word("id"), Name: "image_generation"}
		if prompt, ok := o.takeText("revised_prompt"); ok {
			call.Args = []Arg{{Name: "prompt", Text: prompt}}
		}
		if data, ok := o.takeText("result"); ok {
			p := Part{Type: Result, ID: call.ID, Name: call.Name, Parts: []Part{{Type: Image, MediaType: "image/png", URL: dataURL("image/png", data)}}}
			return r.finish(o, call, p), true
		}
		return r.finish(o, call), true
	case "file", "input_file", "document", "input_audio", "audio":
		p, ok := fileOf(o)
		return r.finish(o, p), ok
	}
	return nil, false
}

func dataURL(mediaType, data string) string { return "data:" + mediaType + ";base64," + data }

// imageOf finds where a picture is, in each of the forms that the APIs use.
func imageOf(o *object) (Part, bool) {
	p := Part{Type: Image}
	p.Name, _ = o.takeText("alt", "filename", "name", "file_name")
	p.MediaType, _ = o.takeText(mediaTypes...)
	o.drop("detail")
	if source, ok := o.enter("source"); ok { // Anthropic
		return sourced(p, source)
	}
	if inner, ok := o.enter("image_url"); ok { // Chat
		p.URL, _ = inner.takeText("url")
		inner.drop("detail")
	} else if text, ok := o.takeText("image_url", "url", "image", "file_url", "data"); ok {
		p.URL = text
	} else if id, ok := o.takeText("file_id"); ok {
		p.URL = "file:" + id
	}
	p.place()
	return p, p.URL != ""
}

var mediaTypes = []string{"mediaType", "media_type", "mimeType", "mime_type"}

// place makes a URL from bare base64, and takes the media type from a URL that names it.
func (p *Part) place() {
	if mediaType, ok := mediaTypeOf(p.URL); ok {
		p.MediaType = mediaType
	} else if p.URL != "" && !strings.Contains(p.URL[:min(len(p.URL), 20)], ":") {
		p.URL = dataURL(p.MediaType, p.URL)
	}
}

// sourced reads Anthropic's source of a picture or a document.
func sourced(p Part, source *object) (Part, bool) {
	if mediaType, ok := source.takeText("media_type"); ok {
		p.MediaType = mediaType
	}
	switch source.word("type") {
	case "base64":
		data, ok := source.takeText("data")
		p.URL = dataURL(p.MediaType, data)
		return p, ok
	case "url":
		p.URL, _ = source.takeText("url")
	case "file":
		id, _ := source.takeText("file_id")
		p.URL = "file:" + id
	case "text":
		p.Text, _ = source.takeText("data")
		return p, true
	}
	return p, p.URL != ""
}

// mediaTypeOf is the type that a data: URL names.
func mediaTypeOf(url string) (string, bool) {
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return "", false
	}
	end := strings.IndexAny(rest[:min(len(rest), 200)], ";,")
	if end < 0 {
		return "", false
	}
	return rest[:end], true
}

// fileOf reads a document or a sound. A file that is a picture is a picture.
func fileOf(o *object) (Part, bool) {
	p := Part{Type: File}
	if audio, ok := o.enter("input_audio"); ok {
		format, _ := audio.takeText("format")
		data, ok := audio.takeText("data")
		p.Name, p.MediaType = "audio", "audio/"+format
		p.URL = dataURL(p.MediaType, data)
		return p, ok
	}
	if file, ok := o.enter("file"); ok { // Chat
		o = file
	}
	p.Name, _ = o.takeText("filename", "title", "name", "file_name", "display_name", "displayName")
	p.MediaType, _ = o.takeText(mediaTypes...)
	if source, ok := o.enter("source"); ok {
		o.dropAll("citations")
		return sourced(p, source)
	}
	if url, ok := o.takeText("url", "file_url", "file_data", "data"); ok {
		p.URL = url
	} else if id, ok := o.takeText("file_id"); ok {
		p.URL = "file:" + id
	}
	p.place()
	if strings.HasPrefix(p.MediaType, "image/") {
		p.Type = Image
	}
	return p, p.URL != "" || p.Name != ""
}
