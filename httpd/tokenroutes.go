package httpd

import (
	"errors"
	"net/http"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// Keeper is an [Access] whose tokens can be made and withdrawn. [Tokens] is one.
type Keeper interface {
	Access
	List() []Token
	Add(k Token) (token string, err error)
	Remove(name string) error
}

// keeper returns the keeper of the tokens, if the caller may manage them.
func (s *Server) keeper(r *http.Request) (Keeper, error) {
	if err := wholeStore(r.Context()); err != nil {
		return nil, err
	}
	if k, ok := s.opt.Access.(Keeper); ok {
		return k, nil
	}
	return nil, &notChecked{"has tokens that are kept elsewhere", "make and withdraw them where they are kept"}
}

// listTokens describes the tokens, without the tokens themselves.
func (s *Server) listTokens(w http.ResponseWriter, r *http.Request) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	k, err := s.keeper(r)
	if err != nil {
		return err
	}
	list := k.List()
	if list == nil {
		list = []Token{}
	}
	return writeJSON(w, http.StatusOK, map[string][]Token{"tokens": list})
}

// addToken makes a token. The answer is the only place where it can be seen.
func (s *Server) addToken(w http.ResponseWriter, r *http.Request) error {
	var given struct {
		Name    string            `json:"name"`
		Rights  string            `json:"rights"`
		Session hansard.SessionID `json:"session"`
		Prefix  string            `json:"prefix"`
		Labels  map[string]string `json:"labels"`
		Expires time.Time         `json:"expires"`
		Rate    float64           `json:"rate"`
		Share   bool              `json:"share"`
	}
	if err := s.decode(w, r, &given); err != nil {
		return err
	}
	k, err := s.keeper(r)
	if err != nil {
		return err
	}
	made := Token{Name: given.Name, Rights: given.Rights, Scope: Scope{given.Session, given.Prefix, given.Labels}, Expires: given.Expires, Rate: given.Rate, Share: given.Share}
	token, err := k.Add(made)
	switch {
	case errors.Is(err, ErrTokenExists):
		return wire.NewProblem("token-exists", ErrTokenExists.Error(), "use another name, or withdraw the one there is")
	case err != nil:
		return err
	}
	return writeJSON(w, http.StatusCreated, map[string]string{"name": made.Name, "token": token})
}

// removeToken withdraws a token.
func (s *Server) removeToken(w http.ResponseWriter, r *http.Request) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	k, err := s.keeper(r)
	if err != nil {
		return err
	}
	switch err := k.Remove(r.PathValue("name")); {
	case errors.Is(err, ErrNoToken):
		return wire.NewProblem("no-such-token", "there is no token of this name", "GET /v1/tokens lists them")
	case err != nil:
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
