package client

import (
	"context"
	"net/http"
	"net/url"

	"hansard/internal/wire"
)

// Tokens sends a request about the server's tokens, which only an admin may make: it
// lists them (GET, into), makes one (POST, as given) or withdraws one (DELETE).
func (s *Store) Tokens(ctx context.Context, method, name string, given, into any) error {
	leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	q := &request{method: method, path: "/v1/tokens"}
	if name != "" {
		q.path += "/" + url.PathEscape(name)
	}
	if method == http.MethodPost {
		q.body = wire.Marshal(given)
	}
	// Not sent again: a token whose response was lost is useless.
	res, _, err := s.once(ctx, q)
	if err != nil || into == nil {
		if err == nil {
			err = res.Body.Close()
		}
		return err
	}
	return readAnswer(res, into)
}
