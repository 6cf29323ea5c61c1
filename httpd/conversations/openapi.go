package conversations

import _ "embed"

// OpenAPI describes the routes: the members "paths" and "components" of an OpenAPI
// 3.1 document, which the server around the handler merges into its own. x-right
// is what a caller should be allowed to do.
//
//go:embed openapi.json
var OpenAPI []byte
