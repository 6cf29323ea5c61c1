package httpd

import "net/http"

// whoami tells the caller what its token allows, so that a client need not offer
// actions that would be refused.
func (s *Server) whoami(w http.ResponseWriter, r *http.Request) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	who := callerOf(r.Context())
	answer := struct {
		Name   string   `json:"name"`
		Rights []string `json:"rights"`
	}{who.Name, []string{}}
	for _, n := range rightNames {
		if who.Rights.allows(n.right) && (n.right == Read || !s.opt.ReadOnly) {
			answer.Rights = append(answer.Rights, n.name)
		}
	}
	return writeJSON(w, http.StatusOK, answer)
}
