package httpd

import (
	"context"
	"net/http"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// verifySession examines one session.
func (s *Server) verifySession(w http.ResponseWriter, r *http.Request) error {
	id := sessionID(r)
	if err := hansard.CheckID(id); err != nil {
		return err
	}
	if _, err := s.door.pass(r.Context(), id, ""); err != nil {
		return err
	}
	return s.verify(w, r, id)
}

// verifyStore examines the whole store.
func (s *Server) verifyStore(w http.ResponseWriter, r *http.Request) error {
	if err := wholeStore(r.Context()); err != nil {
		return err
	}
	return s.verify(w, r, "")
}

// verify answers with one finding per line and a last line that says there are no more:
// a client that does not get that line has not seen all findings.
func (s *Server) verify(w http.ResponseWriter, r *http.Request, id hansard.SessionID) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	store, err := s.checker()
	if err != nil {
		return err
	}
	account := callerOf(r.Context()).account
	if err := account.take(aReport); err != nil {
		return err
	}
	defer account.give(aReport)
	ctx, cancel := context.WithCancel(r.Context())
	found := make(chan examined)
	go examine(ctx, store, id, found)
	defer func() {
		cancel()
		for range found { // drained: the store may be closed as soon as this returns
		}
	}()
	rep := &report{server: s, w: w, r: r, lines: newLines(w), wrote: time.Now()}
	if err := rep.write(found); err != nil {
		if err := s.endLines(rep.lines, r, err); err != nil {
			return err
		}
	}
	return rep.lines.flush()
}

// examined is one thing that a store's Verify yields.
type examined struct {
	hansard.Finding
	err error
}

func examine(ctx context.Context, store hansard.Checker, id hansard.SessionID, found chan<- examined) {
	defer close(found)
	for f, err := range store.Verify(ctx, id) {
		select {
		case found <- examined{f, err}:
		case <-ctx.Done():
			return
		}
	}
}

// report is an answer of findings that is being written. Examining a large session
// may take long: findings are sent as they come, and empty lines are a sign of life.
type report struct {
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	lines  *lines
	wrote  time.Time
	count  int
}

// showEvery is how long a finding waits for others to be written with it.
const showEvery = 200 * time.Millisecond

func (rep *report) write(found <-chan examined) error {
	tick := time.NewTicker(min(showEvery, rep.server.timing.beat))
	defer tick.Stop()
	for {
		select {
		case <-rep.server.closing.Done():
			return hansard.ErrClosed
		case <-rep.r.Context().Done():
			return rep.r.Context().Err()
		case <-tick.C:
			if err := rep.show(); err != nil {
				return err
			}
		case one, more := <-found:
			if err := rep.r.Context().Err(); err != nil {
				return err // a truncated report must not look complete
			}
			if !more {
				return rep.lines.line(wire.Marshal(wire.Complete{Complete: true, Findings: rep.count}))
			}
			if one.err != nil {
				return one.err
			}
			one.Message = wire.Scrub(one.Message)
			rep.count++
			if err := rep.lines.line(wire.Marshal(one.Finding)); err != nil {
				return err
			}
		}
	}
}

// show writes what was found, or a sign of life when there was nothing for a while.
func (rep *report) show() error {
	if len(rep.lines.chunk) == 0 {
		if time.Since(rep.wrote) < rep.server.timing.beat {
			return nil
		}
		if err := rep.lines.line(nil); err != nil {
			return err
		}
	}
	rep.wrote = time.Now()
	if err := rep.lines.flush(); err != nil {
		return err
	}
	return http.NewResponseController(rep.w).Flush()
}

// repairSession makes a sound copy of a damaged session.
func (s *Server) repairSession(w http.ResponseWriter, r *http.Request) error {
	id := sessionID(r)
	if err := s.nothingGiven(w, r, hansard.CheckID(id)); err != nil {
		return err
	}
	store, err := s.checker()
	if err != nil {
		return err
	}
	if _, err := s.door.pass(r.Context(), id, ""); err != nil {
		return err
	}
	done, err := store.Repair(writing(r), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, done)
}

// repairJournal makes a sound journal of a damaged one, if this server is the only
// process that has the store open.
func (s *Server) repairJournal(w http.ResponseWriter, r *http.Request) error {
	if err := s.nothingGiven(w, r, wholeStore(r.Context())); err != nil {
		return err
	}
	store, ok := s.base.(hansard.JournalRepairer)
	if !ok {
		return &notChecked{"has no journal to repair", "only a store of files has one"}
	}
	done, err := store.RepairJournal(writing(r))
	if err != nil {
		return err
	}
	done.Reason = wire.Scrub(done.Reason)
	return writeJSON(w, http.StatusOK, done)
}

// nothingGiven refuses parameters and a body for a route that takes none.
func (s *Server) nothingGiven(w http.ResponseWriter, r *http.Request, err error) error {
	if p := paramsOf(r); err == nil {
		err = p.err
	}
	if err == nil && r.ContentLength != 0 {
		err = s.decode(w, r, &struct{}{})
	}
	return err
}

func (s *Server) checker() (hansard.Checker, error) {
	if store, ok := s.base.(hansard.Checker); ok {
		return store, nil
	}
	return nil, &notChecked{"has nothing to verify or repair", "it keeps no logs that could be damaged"}
}

// notChecked is the error for a request that this kind of store does not support.
type notChecked struct{ why, hint string }

func (e *notChecked) Error() string        { return "not supported: this kind of store " + e.why }
func (e *notChecked) Is(target error) bool { return target == hansard.ErrUnsupported }
func (e *notChecked) Hint() string         { return e.hint }
