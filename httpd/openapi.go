package httpd

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"hansard/httpd/conversations"
)

//go:embed openapi.json
var openAPIDocument []byte

// openAPI describes all routes: this server's routes, and those of the
// conversations where they are served.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	document := openAPIDocument
	if s.talk != nil {
		var err error
		if document, err = wholeDocument(); err != nil {
			return err
		}
	}
	return writeBytes(w, http.StatusOK, document)
}

var wholeDocument = sync.OnceValues(func() ([]byte, error) { return mergeDocuments(openAPIDocument, conversations.OpenAPI) })

// described are parts of a document, by their names.
type described map[string]json.RawMessage

// mergeDocuments adds the paths and the components of one OpenAPI document to
// another. No name may be in both.
func mergeDocuments(document, more []byte) ([]byte, error) {
	type parts struct {
		Paths      described            `json:"paths"`
		Components map[string]described `json:"components"`
	}
	var whole described
	var to, from parts
	for _, step := range []struct {
		text []byte
		into any
	}{{document, &whole}, {document, &to}, {more, &from}} {
		if err := json.Unmarshal(step.text, step.into); err != nil {
			return nil, err
		}
	}
	if err := add(to.Paths, from.Paths); err != nil {
		return nil, err
	}
	for kind, list := range from.Components {
		if to.Components[kind] == nil {
			to.Components[kind] = described{}
		}
		if err := add(to.Components[kind], list); err != nil {
			return nil, err
		}
	}
	var err error
	if whole["paths"], err = json.Marshal(to.Paths); err != nil {
		return nil, err
	}
	if whole["components"], err = json.Marshal(to.Components); err != nil {
		return nil, err
	}
	return json.MarshalIndent(whole, "", " ")
}

func add(to, from described) error {
	for name, part := range from {
		if to[name] != nil {
			return fmt.Errorf("%s is described twice", name)
		}
		to[name] = part
	}
	return nil
}
