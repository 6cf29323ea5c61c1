package httpd

import (
	"context"
	"maps"
	"net/http"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
)

// forkSession makes a session that begins with the history of another. A caller that may not
// read that history must not get a copy of it.
func (s *Server) forkSession(w http.ResponseWriter, r *http.Request) error {
	if !callerOf(r.Context()).Rights.allows(Read) {
		return missingRight(Read)
	}
	var given struct {
		At   *hansard.Seq       `json:"at"`
		AtID *string            `json:"at_id"`
		As   *hansard.SessionID `json:"as"`
		hansard.Meta
	}
	if err := s.decode(w, r, &given); err != nil {
		return err
	}
	if r.Header.Get("If-Match") != "" {
		return &hansard.InvalidError{Field: "If-Match", Reason: "a fork has no such condition; say at which seq it is made"}
	}
	if given.As == nil && r.Header.Get(wire.KeyHeader) != "" {
		return &hansard.InvalidError{Field: wire.KeyHeader, Reason: "a fork takes no key; give it a name, and a retry answers that it exists"}
	}
	f := hansard.Fork{Meta: given.Meta}
	switch {
	case given.At != nil && given.AtID != nil:
		return &hansard.InvalidError{Field: "at_id", Reason: "the fork is made at a seq or at an event's id, not both"}
	case given.At != nil && *given.At == 0:
		return &hansard.InvalidError{Field: "at", Reason: "there is no event 0; leave it out for the last"}
	case given.At != nil:
		f.At = *given.At
	case given.AtID != nil && *given.AtID == "":
		return &hansard.InvalidError{Field: "at_id", Reason: "it is empty"}
	case given.AtID != nil:
		var err error
		if f.At, err = s.seqOf(r.Context(), sessionID(r), *given.AtID); err != nil {
			return err
		}
	}
	if given.As != nil {
		if f.As = *given.As; f.As == "" {
			return &hansard.InvalidError{Field: "as", Reason: "it is empty; leave it out for an id of the server's"}
		}
	}
	info, err := s.store.Fork(writing(r), sessionID(r), f)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/sessions/"+string(info.ID))
	return answerSession(w, http.StatusCreated, info)
}

// Fork forks a session that is in scope into one that is, too: its id and labels are such
// as the token's scope requires.
func (d *door) Fork(ctx context.Context, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
	who, err := d.pass(ctx, id, "")
	if err != nil {
		return hansard.Info{}, err
	}
	if f.As == "" {
		f.As = who.newID(engine.NewID())
	}
	if hansard.CheckID(f.As) == nil && !who.Scope.named(f.As) {
		return hansard.Info{}, who.notThere(f.As)
	}
	labels, err := who.withLabels(f.Meta.Labels)
	if err != nil {
		return hansard.Info{}, err
	}
	f.Meta.Labels, f.By = labels, who.Name
	return d.Store.Fork(ctx, id, f)
}

// newID is the id of a session that the server names: it begins as those of the token's scope do.
func (c caller) newID(name hansard.SessionID) hansard.SessionID {
	return hansard.SessionID(c.Scope.Prefix) + name
}

// withLabels adds the labels of a token's scope to those that are given.
func (c caller) withLabels(given map[string]string) (map[string]string, error) {
	if len(c.Scope.Labels) == 0 {
		return given, nil
	}
	labels := maps.Clone(c.Scope.Labels)
	for name, value := range given {
		if want, ok := labels[name]; ok && want != value {
			return nil, &hansard.InvalidError{Field: "labels[" + name + "]", Reason: "sessions of this token have another"}
		}
		labels[name] = value
	}
	return labels, nil
}
