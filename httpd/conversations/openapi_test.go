package conversations

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"hansard/memstore"
)

type apiDocument struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Responses map[string]json.RawMessage
		Schemas   map[string]struct {
			Properties           map[string]json.RawMessage
			Required             []string
			AdditionalProperties any
		}
	}
}

// TestOpenAPI: the document has exactly the existing routes, with their parameters, and the
// answers have the members it lists.
func TestOpenAPI(t *testing.T) {
	var d apiDocument
	if err := json.Unmarshal(OpenAPI, &d); err != nil {
		t.Fatal(err)
	}
	tables := map[string][]route{"": collectionRoutes, "/{conversation_id}": conversationRoutes,
		"/{conversation_id}/items": itemsRoutes, "/{conversation_id}/items/{item_id}": itemRoutes}
	if len(tables) != len(d.Paths) {
		t.Errorf("%d paths are described, there are %d", len(d.Paths), len(tables))
	}
	s := newServer(t, memstore.New())
	id := s.create(`{"items":[` + message("x") + `,` + message("y") + `]}`)
	item := s.list(id, "").ids(t)[0]
	bodies := map[string]string{"": `{}`, "/{conversation_id}": `{"metadata":{}}`, "/{conversation_id}/items": `{"items":[` + message("z") + `]}`}
	for _, path := range slices.Sorted(maps.Keys(tables)) {
		for _, rt := range tables[path] {
			var op struct {
				Parameters []struct{ Name, In string }
				Responses  map[string]struct {
					Content map[string]struct {
						Schema struct {
							Ref string `json:"$ref"`
						}
					}
				}
			}
			if err := json.Unmarshal(d.Paths[Prefix+path][strings.ToLower(rt.method)], &op); err != nil {
				t.Errorf("%s %s is not described: %v", rt.method, path, err)
				continue
			}
			for _, p := range op.Parameters {
				if p.In == "query" && !slices.Contains(rt.query, p.Name) {
					t.Errorf("%s %s does not take %s", rt.method, path, p.Name)
				}
			}
			for _, name := range rt.query {
				if name != "include" && !strings.Contains(fmt.Sprint(op.Parameters), "{"+name+" query}") {
					t.Errorf("%s %s: %s is not described", rt.method, path, name)
				}
			}
			name := strings.TrimPrefix(op.Responses["200"].Content["application/json"].Schema.Ref, "#/components/schemas/")
			schema, ok := d.Components.Schemas[name]
			if !ok {
				t.Errorf("%s %s answers %q, which is not described", rt.method, path, name)
				continue
			}
			if rt.method == "DELETE" && path == "/{conversation_id}" {
				continue // last, or nothing would be left for the others
			}
			real := strings.NewReplacer("{conversation_id}", id, "{item_id}", item).Replace(path)
			compare(t, s.ok(rt.method, real, bodies[path]), schema.Required, schema.AdditionalProperties == false)
		}
	}
	deleted := d.Components.Schemas["OpenAIConversationDeleted"]
	compare(t, s.ok("DELETE", "/"+id, ""), deleted.Required, true)
	compare(t, s.do("GET", "/"+id, "").body, d.Components.Schemas["OpenAIError"].Required, true)
}

// compare checks that an object has these members, and only these if exact.
func compare(t *testing.T, body string, members []string, exact bool) {
	t.Helper()
	var o map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &o); err != nil {
		t.Fatal(err)
	}
	for _, name := range members {
		if _, ok := o[name]; !ok {
			t.Errorf("there is no %s in %s", name, body)
		}
	}
	if exact && len(o) != len(members) {
		t.Errorf("%s has other members than %v", body, members)
	}
}
