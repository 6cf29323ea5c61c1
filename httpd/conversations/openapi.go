package conversations

import _ "embed"

// OpenAPI describes the routes: the members "paths" and "components" of an OpenAPI
// 3.1 document, which the server around the handler merges into its own. x-right
// is the right that a caller should need.
//
//go:embed openapi.json
var OpenAPI []byte
