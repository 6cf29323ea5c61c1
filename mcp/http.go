package mcp

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Path is the path of a server over HTTP.
const Path = "/mcp"

// maxRequest bounds the body of a request: it is more than the longest message with every
// byte escaped.
const maxRequest = 6*maxMessage + 64<<10

// Handler serves MCP over HTTP, without sessions, to clients that have the token. It is for
// the loopback: the Host has to be a loopback one, and requests from pages of other sites
// are refused.
func Handler(s *sdk.Server, token string) http.Handler {
	serve := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxRequest, PropagateRequestCancellation: true,
	})
	want := sha256.Sum256([]byte(token))
	checked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(given))
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		switch {
		case r.URL.Path != Path:
			http.NotFound(w, r)
		case token == "" || !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the token is missing or wrong: send Authorization: Bearer TOKEN", http.StatusUnauthorized)
		default:
			serve.ServeHTTP(w, r)
		}
	})
	return http.NewCrossOriginProtection().Handler(checked)
}
