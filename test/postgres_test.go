//go:build unix

package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/client"
	"hansard/internal/pgtest"
	"hansard/pgstore"
	"hansard/storetest"
)

// startPostgresServer is a server on a PostgreSQL store, which has no directory for its tokens.
func startPostgresServer(t *testing.T, store string) *server {
	t.Helper()
	return startServer(t, store, "--token-file", filepath.Join(t.TempDir(), "tokens"))
}

func openPostgres(t *testing.T, store string) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), store, nil)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func connect(t *testing.T, s *server) *client.Store {
	t.Helper()
	c, err := client.New("http://"+s.address, &client.Options{Token: serverToken, Patience: waitMax})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestPostgresServers: three servers on one database, each with 32 clients that append with keys
// over HTTP and WebSocket, and that take turns and lose them, on 50 sessions: no gaps, no
// duplicates, everything acknowledged in its place and nothing else, and every write under a void
// grant is refused with 409. A follower through any of the servers sees every event, once and in
// order.
func TestPostgresServers(t *testing.T) {
	const servers, clients, sessions = 3, 32, 50
	store := pgtest.Shared(t).Schema(t)
	db := openPostgres(t, store)
	for i := range sessions {
		_, err := db.Create(t.Context(), crowdSession(i), hansard.Meta{})
		must(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitMax)
	defer cancel()
	all := &crowd{t: t, ctx: ctx, stop: make(chan struct{}), acks: map[hansard.SessionID][]crowdAck{}, refused: map[string]bool{}, granted: map[hansard.Grant]hansard.SessionID{}}
	var serving []*server
	var following sync.WaitGroup
	for n := range servers {
		s := startPostgresServer(t, store)
		serving = append(serving, s)
		remote := connect(t, s)
		following.Go(func() {
			if err := followToEnd(ctx, remote, crowdSession(0)); err != nil {
				t.Errorf("who follows through server %d: %v", n, err)
			}
		})
		for i := range clients {
			m := &member{crowd: all, name: fmt.Sprintf("server%d.client%d", n, i), first: n*clients + i, sessions: sessions, address: s.address, remote: remote}
			all.running.Go(func() {
				var err error
				switch i % 4 {
				case 0, 1:
					err = m.overHTTP()
				case 2:
					err = m.overWebSocket()
				case 3:
					// All three servers have agents in the same sessions.
					m.first, m.sessions = i/4, clients/4
					err = m.takeTurns()
				}
				if err != nil {
					t.Errorf("%s: %v", m.name, err)
				}
			})
		}
	}
	want := int64(scale(3000))
	eventually(t, "the clients append, and lose turns", func() bool {
		return ctx.Err() != nil || t.Failed() || all.stored.Load() >= want && all.superseded.Load() >= 30 && all.released.Load() >= 30
	})
	close(all.stop)
	all.running.Wait()
	end := hansard.Batch{Events: storetest.Marked(lastBatch, 0, 1, 0)}
	r, err := db.Append(ctx, crowdSession(0), end)
	must(t, err)
	all.acks[crowdSession(0)] = append(all.acks[crowdSession(0)], crowdAck{Ack: storetest.Ack{Writer: lastBatch, Receipt: r}})
	following.Wait()
	for _, s := range serving {
		s.signal(syscall.SIGTERM)
		if code := s.exit(); code != 0 {
			t.Errorf("a server: exit code %d, stderr %s", code, s.stderr)
		}
	}
	all.check(db, sessions)
	t.Logf("%d appends, %d grants; %d writes refused after a take-over, %d after a release, %d that came too late", all.stored.Load(), len(all.granted), all.superseded.Load(), all.released.Load(), all.late.Load())
}

// followToEnd follows a session, which must come without gaps or duplicates, until the very last
// batch.
func followToEnd(ctx context.Context, s hansard.Store, id hansard.SessionID) error {
	last := hansard.Seq(0)
	for e, err := range hansard.Follow(ctx, s, id, 0) {
		if err != nil {
			return err
		}
		if last++; e.Seq != last {
			return fmt.Errorf("saw seq %d, want %d", e.Seq, last)
		}
		if e.Author == lastBatch {
			return nil
		}
	}
	return fmt.Errorf("it ended behind seq %d", last)
}

func crowdSession(i int) hansard.SessionID { return hansard.SessionID(fmt.Sprint("s", i)) }

// crowd is the answers given to many clients, kept outside of the store.
type crowd struct {
	t       *testing.T
	ctx     context.Context
	stop    chan struct{}
	running sync.WaitGroup

	stored     atomic.Int64
	superseded atomic.Int64 // writes refused because another client had the turn
	released   atomic.Int64 // because it was released
	late       atomic.Int64 // because the holder was slow

	mu      sync.Mutex // guards below
	acks    map[hansard.SessionID][]crowdAck
	refused map[string]bool // batches, as batchName
	granted map[hansard.Grant]hansard.SessionID
}

// crowdAck is an acknowledgement and the grant it was written under.
type crowdAck struct {
	storetest.Ack
	grant hansard.Grant
}

func batchName(writer string, n int) string { return fmt.Sprint(writer, "/", n) }

func (c *crowd) stopped() bool {
	select {
	case <-c.stop:
		return true
	case <-c.ctx.Done():
		return true
	default:
		return false
	}
}

// check compares the logs, read from the database itself, with the answers given.
func (c *crowd) check(db *pgstore.Store, sessions int) {
	t := c.t
	for i := range sessions {
		id := crowdSession(i)
		log := storetest.ReadAll(t, db, id)
		var acks []storetest.Ack
		told := map[string]hansard.Grant{}
		for _, a := range c.acks[id] {
			acks = append(acks, a.Ack)
			told[batchName(a.Writer, a.Batch)] = a.grant
		}
		if err := storetest.CheckLog(log, acks); err != nil {
			t.Errorf("session %s: %v", id, err)
		}
		for _, e := range log {
			if e.Kind == hansard.KindTurn {
				if c.granted[e.Turn] != id {
					t.Errorf("session %s: seq %d is about grant %s, which nobody has of it", id, e.Seq, e.Turn)
				}
				continue
			}
			var m storetest.Mark
			must(t, json.Unmarshal(e.Data, &m))
			grant, acked := told[batchName(m.Writer, m.Batch)]
			if !acked || c.refused[batchName(m.Writer, m.Batch)] {
				t.Errorf("session %s: seq %d, batch %d of %s, is stored and was not acknowledged", id, e.Seq, m.Batch, m.Writer)
			}
			if e.Turn != grant {
				t.Errorf("session %s: seq %d was written under %q and says %q", id, e.Seq, grant, e.Turn)
			}
		}
	}
	// It follows the grants through each log: a write under a grant that is not current is
	// damage.
	for f, err := range db.Verify(t.Context(), "") {
		if err != nil || f.Level != hansard.LevelOK {
			t.Errorf("verify: %+v, %v", f, err)
		}
	}
}

// member is one client of the crowd.
type member struct {
	*crowd
	name            string
	first, sessions int // where it begins, and how many it cycles through
	address         string
	remote          *client.Store
	n               int // batches so far
}

// next is the next batch, and the session it goes to.
func (m *member) next() (hansard.SessionID, hansard.Batch) {
	m.n++
	return crowdSession((m.first + m.n) % m.sessions), hansard.Batch{Events: storetest.Marked(m.name, m.n, 1+m.n%3, 100), Key: batchName(m.name, m.n)}
}

func (m *member) ack(id hansard.SessionID, grant hansard.Grant, r hansard.Receipt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acks[id] = append(m.acks[id], crowdAck{storetest.Ack{Writer: m.name, Batch: m.n, Receipt: r}, grant})
	m.stored.Add(1)
}

func (m *member) refuse(count *atomic.Int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused[batchName(m.name, m.n)] = true
	count.Add(1)
}

// overHTTP appends with package client. Every fifth batch is sent twice.
func (m *member) overHTTP() error {
	for !m.stopped() {
		id, b := m.next()
		for range 1 + m.n%5/4 {
			r, err := m.remote.Append(m.ctx, id, b)
			if err != nil {
				return err
			}
			m.ack(id, "", r)
		}
	}
	return nil
}

func (m *member) overWebSocket() error {
	s, err := dialSocket(m.ctx, m.address)
	if err != nil {
		return err
	}
	defer s.conn.CloseNow()
	for !m.stopped() {
		id, b := m.next()
		if err := s.send(order{"op": "append", "session": id, "batch": order{"events": given(b.Events), "key": b.Key}}); err != nil {
			return err
		}
		answer, err := s.read()
		if err != nil || answer.Op != "stored" {
			return fmt.Errorf("append: %+v, %w", answer, err)
		}
		m.ack(id, "", answer.Receipt)
	}
	return nil
}

// takeTurns takes the turn of one session repeatedly, writes under it, and tries to write under
// it once more when it is void: after releasing it, or after being silent until another agent, of
// any of the servers, has taken it.
func (m *member) takeTurns() error {
	id := crowdSession(m.first)
	for round := 0; !m.stopped(); round++ {
		turn, err := m.remote.Acquire(m.ctx, id, hansard.Claim{Wait: 200 * time.Millisecond, TTL: 100 * time.Millisecond, Label: m.name})
		if errors.Is(err, hansard.ErrHeld) {
			continue
		}
		if err != nil {
			return err
		}
		m.mu.Lock()
		if at, twice := m.granted[turn.Grant]; twice {
			m.t.Errorf("grant %s was given twice, in %s and in %s", turn.Grant, at, id)
		}
		m.granted[turn.Grant] = id
		m.mu.Unlock()
		_, b := m.next()
		b.Turn = turn.Grant
		switch r, err := m.remote.Append(m.ctx, id, b); {
		case err == nil:
			m.ack(id, turn.Grant, r)
		case errors.Is(err, hansard.ErrFenced): // a slow machine: its TTL was over
			m.refuse(&m.late)
			continue
		default:
			return err
		}
		void := &m.released
		if round%2 == 0 {
			void = &m.superseded
			if lost, err := m.lost(id, turn.Grant); err != nil || !lost {
				return err
			}
		} else if err := m.remote.Release(m.ctx, id, turn.Grant); err != nil && !errors.Is(err, hansard.ErrFenced) {
			return err
		}
		if err := m.writeVoid(id, turn.Grant); err != nil {
			return err
		}
		m.refuse(void)
	}
	return nil
}

// lost waits until another client has the turn, or the test is over.
func (m *member) lost(id hansard.SessionID, g hansard.Grant) (bool, error) {
	for !m.stopped() {
		t, err := m.remote.Turn(m.ctx, id)
		if err != nil {
			return false, err
		}
		if t != nil && t.Grant != g {
			return true, nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false, nil
}

// writeVoid appends under a void grant, which the server must refuse.
func (m *member) writeVoid(id hansard.SessionID, g hansard.Grant) error {
	_, b := m.next()
	b.Turn = g
	if m.n%2 == 0 {
		if r, err := m.remote.Append(m.ctx, id, b); !errors.Is(err, hansard.ErrFenced) {
			return fmt.Errorf("a write under the void grant %s: %+v, %v; want fenced", g, r, err)
		}
		return nil
	}
	return refusedAsFenced(m.ctx, m.address, id, b)
}

// refusedAsFenced sends a batch as any HTTP client would, and expects 409 and the problem type
// that tells programs why.
func refusedAsFenced(ctx context.Context, address string, id hansard.SessionID, b hansard.Batch) error {
	body, err := json.Marshal(order{"events": given(b.Events), "turn": b.Turn, "key": b.Key})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+address+"/v1/sessions/"+string(id)+"/events", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+serverToken)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var problem struct {
		Type  string
		Grant hansard.Grant
	}
	err = json.NewDecoder(res.Body).Decode(&problem)
	if err != nil || res.StatusCode != http.StatusConflict || problem.Type != "/problems/fenced" || problem.Grant != b.Turn {
		return fmt.Errorf("a write under the void grant %s: %s %+v, %v; want 409 fenced", b.Turn, res.Status, problem, err)
	}
	return nil
}
