package pgstore

import (
	"testing"
	"time"

	"hansard"
)

// TestTurnsLeaveConnections: however many calls about the turn of one session wait for its row,
// which somebody else has locked, other sessions are read and written.
func TestTurnsLeaveConnections(t *testing.T) {
	s := newBlocking(t, "&pool_max_conns=4")
	s.makeSessions("other")
	turn, err := s.Acquire(t.Context(), "s", hansard.Claim{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s.exec("SET idle_in_transaction_session_timeout = 0")
	s.lock()
	var renewed []<-chan outcome[struct{}]
	for range 20 {
		renewed = append(renewed, later(func() (struct{}, error) { return struct{}{}, s.Renew(t.Context(), "s", turn.Grant) }))
	}
	s.waiting(2)
	soon(t, "another session is written", later(func() (hansard.Receipt, error) {
		return s.Append(t.Context(), "other", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}})
	}))
	soon(t, "another session is read", later(func() (hansard.Info, error) { return s.Stat(t.Context(), "other") }))
	s.exec("COMMIT")
	for _, r := range renewed {
		if o := <-r; o.err != nil {
			t.Error(o.err)
		}
	}
}
