package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"

	"hansard"
	"hansard/internal/wire"
)

var (
	_ hansard.Checker         = (*Store)(nil)
	_ hansard.JournalRepairer = (*Store)(nil)
)

// Verify implements [hansard.Checker]: the server examines its store and reports what
// it finds as it finds it. A report that breaks off is an error, however much of it
// arrived.
func (s *Store) Verify(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Finding, error] {
	return func(yield func(hansard.Finding, error) bool) {
		path, given := "/v1/verify", error(nil)
		if id != "" {
			path, given = sessionPath(id, "/verify"), hansard.CheckID(id)
		}
		leave, err := s.enter(ctx, given)
		if err != nil {
			yield(hansard.Finding{}, err)
			return
		}
		defer leave()
		looking, cancel := s.until(ctx)
		defer cancel()
		count, complete, stopped := 0, false, false
		err = s.lines(looking, func() *request {
			if count > 0 || complete {
				return nil // starting over would repeat findings
			}
			return &request{method: http.MethodGet, path: path, lines: true}
		}, func(line []byte) (bool, error) {
			if err := looking.Err(); err != nil {
				return false, err
			}
			f, end, err := parseFinding(line)
			switch {
			case err != nil:
				return false, fmt.Errorf("%s sends a finding that can't be read: %w", s.name, err)
			case end != nil && end.Findings != count:
				return false, fmt.Errorf("%s reported %d findings, but %d arrived", s.name, end.Findings, count)
			case end != nil:
				complete = true
				return false, nil
			case f == nil: // a sign of life
				return true, nil
			}
			count++
			stopped = !yield(*f, nil)
			return !stopped, nil
		})
		if err == nil && !complete && !stopped {
			err = &UnreachableError{s.name, &brokenOff{io.ErrUnexpectedEOF}}
		}
		if err != nil && !stopped {
			yield(hansard.Finding{}, s.older(s.ended(ctx, err)))
		}
	}
}

// parseFinding reads a line of a report: a finding, the end, or nothing.
func parseFinding(line []byte) (*hansard.Finding, *wire.Complete, error) {
	if len(line) == 0 {
		return nil, nil, nil
	}
	var either struct {
		hansard.Finding
		wire.Complete
	}
	if err := json.Unmarshal(line, &either); err != nil {
		return nil, nil, err
	}
	if either.Complete.Complete {
		return nil, &either.Complete, nil
	}
	switch either.Level {
	case hansard.LevelOK, hansard.LevelNote, hansard.LevelUnread, hansard.LevelDamage:
		return &either.Finding, nil, nil
	}
	return nil, nil, fmt.Errorf("it has the level %q", either.Level)
}

// Repair implements [hansard.Checker].
func (s *Store) Repair(ctx context.Context, id hansard.SessionID) (done hansard.Repaired, err error) {
	err = s.repair(ctx, hansard.CheckID(id), sessionPath(id, "/repair"), &done, func() bool { return done.Changed })
	return done, err
}

// RepairJournal implements [hansard.JournalRepairer]. The server does it if it is the
// only process that has the store open.
func (s *Store) RepairJournal(ctx context.Context) (done hansard.JournalRepaired, err error) {
	err = s.repair(ctx, nil, "/v1/journal/repair", &done, func() bool { return done.Changed })
	return done, err
}

// repair asks for a repair. If the request is sent twice the repair is still done once,
// but the response that said what was done may be the one that was lost.
func (s *Store) repair(ctx context.Context, given error, path string, done any, changed func() bool) error {
	leave, err := s.enter(ctx, given)
	if err != nil {
		return err
	}
	defer leave()
	uncertain, err := s.answer(ctx, &request{method: http.MethodPost, path: path}, done)
	switch {
	case err == nil && uncertain && !changed():
		return &lostAnswer{}
	case err != nil:
		return s.older(open(uncertain, err))
	}
	return nil
}

// lostAnswer is the error of a repair that may have been done by an earlier attempt.
type lostAnswer struct{}

func (e *lostAnswer) Error() string {
	return "outcome unknown: it is sound now, but the response that said whether it was repaired was lost"
}
func (e *lostAnswer) Is(target error) bool { return target == hansard.ErrUnknown }
func (e *lostAnswer) Hint() string {
	return "a repair keeps what it replaces in evidence/ of the store"
}

// older explains that the server lacks a route that this client needs.
func (s *Store) older(err error) error {
	var p *wire.Problem
	if errors.As(err, &p) && p.Type == wire.ProblemType("no-such-route") {
		return &olderError{s.name}
	}
	return err
}

type olderError struct{ server string }

func (e *olderError) Error() string {
	return "the server at " + e.server + " is older than this program: it can't verify or repair"
}
func (e *olderError) Is(target error) bool { return target == hansard.ErrUnsupported }
func (e *olderError) Hint() string {
	return "update the server, or run the command where the store is kept"
}
