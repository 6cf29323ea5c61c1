package pgstore

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
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

// TestCommitsLeaveConnections: while no commit is answered, because the synchronous standby is
// gone, sessions are read, however many are written.
func TestCommitsLeaveConnections(t *testing.T) {
	t.Parallel() // with a server of its own
	server := pgtest.New(t)
	s := newBlockingAt(t, server, server.Schema(t)+"&pool_max_conns=6")
	var ids []hansard.SessionID
	for i := range 20 {
		ids = append(ids, hansard.SessionID(fmt.Sprint("s", i)))
	}
	s.makeSessions(ids...)
	s.server.Reload(t, "synchronous_standby_names = 'gone'")
	s.server.Until(t, "SELECT current_setting('synchronous_standby_names') = 'gone'")
	var appended []<-chan outcome[hansard.Receipt]
	for i, id := range ids {
		appended = append(appended, s.appendLater(id))
		if i < 4 { // each in a commit of its own
			s.server.Until(t, fmt.Sprintf("SELECT count(*) >= %d FROM pg_stat_activity WHERE wait_event = 'SyncRep'", min(i+1, cap(s.mayWait)+cap(s.mayCommit))))
		}
	}
	soon(t, "a session is read", later(func() (hansard.Info, error) { return s.Stat(t.Context(), "s") }))
	s.server.Reload(t, "synchronous_standby_names = ''")
	for _, a := range appended {
		if o := <-a; o.err != nil {
			t.Error(o.err)
		}
	}
}

// TestUploadsLeaveConnections: however many uploads to one session wait for its row, which
// somebody else has locked, other sessions are read.
func TestUploadsLeaveConnections(t *testing.T) {
	s := newBlocking(t, "&pool_max_conns=4")
	s.makeSessions("other")
	s.exec("SET idle_in_transaction_session_timeout = 0")
	s.lock()
	var attached []<-chan outcome[hansard.Attachment]
	for range 20 {
		attached = append(attached, later(func() (hansard.Attachment, error) { return s.Attach(t.Context(), "s", bytes.NewReader([]byte("x"))) }))
	}
	s.waiting(cap(s.mayLock))
	soon(t, "another session is read", later(func() (hansard.Info, error) { return s.Stat(t.Context(), "other") }))
	s.exec("COMMIT")
	for _, a := range attached {
		if o := <-a; o.err != nil {
			t.Error(o.err)
		}
	}
}

// TestSearchesLeaveConnections: while no commit is answered, because the synchronous standby is
// gone, sessions are read, however many searches have words to add, and probes are made.
func TestSearchesLeaveConnections(t *testing.T) {
	t.Parallel() // with a server of its own
	server := pgtest.New(t)
	s := newBlockingAt(t, server, server.Schema(t)+"&pool_max_conns=4")
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte(`"word"`)}}}); err != nil {
		t.Fatal(err)
	}
	s.server.Reload(t, "synchronous_standby_names = 'gone'")
	s.server.Until(t, "SELECT current_setting('synchronous_standby_names') = 'gone'")
	var calls []<-chan outcome[struct{}]
	for range 10 {
		calls = append(calls, later(func() (struct{}, error) {
			hits := 0
			for _, err := range s.Search(t.Context(), hansard.SearchQuery{Text: "word"}) {
				if hits++; err != nil {
					return struct{}{}, err
				}
			}
			if hits != 1 {
				return struct{}{}, fmt.Errorf("%d hits", hits)
			}
			return struct{}{}, nil
		}), later(func() (struct{}, error) { return struct{}{}, s.Probe(t.Context()) }))
	}
	until(t, "as many wait as may", func() bool { return len(s.mayLock) == cap(s.mayLock) })
	s.server.Until(t, "SELECT count(*) >= 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	soon(t, "a session is read", later(func() (hansard.Info, error) { return s.Stat(t.Context(), "s") }))
	s.server.Reload(t, "synchronous_standby_names = ''")
	for _, c := range calls {
		if o := <-c; o.err != nil {
			t.Error(o.err)
		}
	}
}

// broken is an upload that ends in an error once it may.
type broken struct{ begun, end chan struct{} }

func (b broken) Read([]byte) (int, error) {
	b.begun <- struct{}{}
	<-b.end
	return 0, errors.New("broken off")
}

// TestRemovalsLeaveConnections: while no commit is answered, because the synchronous standby is
// gone, sessions are read, however many uploads are broken off and have to be removed.
func TestRemovalsLeaveConnections(t *testing.T) {
	t.Parallel() // with a server of its own
	server := pgtest.New(t)
	s := newBlockingAt(t, server, server.Schema(t)+"&pool_max_conns=4")
	upload := broken{make(chan struct{}), make(chan struct{})}
	var attached []<-chan outcome[hansard.Attachment]
	for range 10 {
		attached = append(attached, later(func() (hansard.Attachment, error) { return s.Attach(t.Context(), "s", upload) }))
		<-upload.begun
	}
	s.server.Reload(t, "synchronous_standby_names = 'gone'")
	s.server.Until(t, "SELECT current_setting('synchronous_standby_names') = 'gone'")
	close(upload.end)
	for _, a := range attached {
		if o := <-a; o.err == nil {
			t.Error("it was attached")
		}
	}
	s.server.Until(t, fmt.Sprintf("SELECT count(*) >= %d FROM pg_stat_activity WHERE wait_event = 'SyncRep'", cap(s.mayLock)))
	soon(t, "a session is read", later(func() (hansard.Info, error) { return s.Stat(t.Context(), "s") }))
	s.server.Reload(t, "synchronous_standby_names = ''")
	s.server.Until(t, fmt.Sprintf("SELECT count(*) = 0 FROM %s.hansard_attachments", schemaIn(t, s)))
}
