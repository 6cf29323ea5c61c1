package mcp

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hansard"
)

// base begins the URIs of resources. A session is base and its id; an event adds
// "/events/" and its seq.
const base = "hansard://sessions/"

const plainText = "text/plain"

// address is the URI of a session. Characters that an id may have and a URI may not are
// escaped.
func address(id hansard.SessionID) string { return base + url.QueryEscape(string(id)) }

func (s *server) addResources(to *sdk.Server) {
	to.AddResourceTemplate(&sdk.ResourceTemplate{Name: "session", Title: "A session", MIMEType: plainText, URITemplate: base + "{id}",
		Description: "The newest events of a session, as text."}, s.resource)
	to.AddResourceTemplate(&sdk.ResourceTemplate{Name: "event", Title: "An event", MIMEType: plainText, URITemplate: base + "{id}/events/{seq}",
		Description: "One event of a session, as text."}, s.resource)
	to.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
			if params, ok := r.GetParams().(*sdk.ListResourcesParams); ok && method == "resources/list" {
				return s.listResources(ctx, params)
			}
			return next(ctx, method, r)
		}
	})
}

// listResources lists the sessions, newest by creation first: in this order each appears
// once across pages.
func (s *server) listResources(ctx context.Context, p *sdk.ListResourcesParams) (sdk.Result, error) {
	out := &sdk.ListResourcesResult{Cacheable: sdk.Cacheable{CacheScope: "private"}, Resources: []*sdk.Resource{}}
	cursor := ""
	if p != nil {
		cursor = p.Cursor
	}
	_, err := s.guarded(ctx, "resources/list", func(ctx context.Context) (string, error) {
		infos, next, err := s.sessions(ctx, hansard.Query{Order: hansard.OrderCreated, Cursor: cursor}, maxListed)
		out.NextCursor = next
		for i := range infos {
			out.Resources = append(out.Resources, &sdk.Resource{URI: address(infos[i].ID), Name: string(infos[i].ID), Title: line(infos[i].Title, 200),
				MIMEType: plainText, Description: describe(&infos[i])})
		}
		return "", err
	})
	return out, err
}

// resource reads a session or an event.
func (s *server) resource(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	uri := r.Params.URI
	text, err := s.guarded(ctx, "resources/read", func(ctx context.Context) (string, error) {
		rest, ok := strings.CutPrefix(uri, base)
		name, seq, isEvent := strings.Cut(rest, "/events/")
		id, err := url.PathUnescape(name)
		if !ok || err != nil {
			return "", hansard.ErrNotFound
		}
		if !isEvent {
			return s.read(ctx, nil, readArgs{Session: id, MaxBytes: maxAnswer})
		}
		n, err := strconv.ParseInt(seq, 10, 64)
		if err != nil {
			return "", hansard.ErrNoEvent
		}
		return s.readEvent(ctx, nil, eventArgs{Session: id, Seq: n, MaxBytes: maxAnswer})
	})
	switch {
	case errors.Is(err, hansard.ErrNotFound), errors.Is(err, hansard.ErrDeleted), errors.Is(err, hansard.ErrNoEvent), errors.Is(err, hansard.ErrInvalid):
		return nil, sdk.ResourceNotFoundError(uri)
	case err != nil:
		return nil, err
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: plainText, Text: text}}}, nil
}
