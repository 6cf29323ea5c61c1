package pgstore

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
)

// locked is a session while a transaction holds the lock of its row: nobody else
// changes it until the decision about it is committed.
type locked struct {
	id   hansard.SessionID
	head *head        // nil when there is no such session
	meta hansard.Meta // if the job asked for it
	// now is the database's clock, read when the lock was there: a clock read
	// before would not count the time spent waiting for it.
	now  time.Time
	keys map[string]stored // those of the job's keys that are known
	mine int64             // the seq under which the job's mark is known, or 0
	// ahead tells of a claim on the turn whether somebody waits for longer.
	ahead bool
}

// stored is what a key remembers.
type stored struct {
	hash        string
	first, last hansard.Seq
}

// change is what is decided about a locked session.
type change struct {
	create *hansard.Meta // it is new, with this metadata
	rows   rows          // what is added to its log
	meta   *hansard.Meta // its metadata from now on
	turn   bool          // head's turn is another from now on
	renew  bool          // the holder of the turn lives
	remove bool          // it is deleted
	head   head          // what the row is to be; ignored where nothing above says so
	more   func(b *pgx.Batch)
}

// job is one decision about a session.
type job struct {
	id     hansard.SessionID
	keys   []string
	meta   bool
	ticket string // of a claim on the turn
	// decide is called with the row locked, and again when the transaction has
	// to be repeated. The change is committed also when it comes with an error:
	// that is the answer then. No change is committed too, so that an answer
	// rests on what is durable.
	decide func(l *locked) (*change, error)

	// mark is the job's own key: whatever is stored for it is stored under it,
	// and so at most once.
	mark string
	sent bool        // an attempt was sent whose outcome is open
	late bool        // something was sent under the mark that may arrive at any time
	err  error       // its answer, if it was committed
	at   hansard.Seq // where it was found to be stored
}

// maxRaces is how often a transaction is repeated because another one came first:
// each time somebody else got something done.
const maxRaces = 1000

// statementPatience is when a statement that gets no answer is given up: the
// network may have lost it without saying so.
const statementPatience = time.Minute

// decide carries a job out. It ends with the answer of the job's decision, with
// an UnavailableError when nothing was sent, or with ErrUnknown.
func (s *Store) decide(ctx context.Context, j *job) error {
	if j.mark == "" {
		j.mark = newMark()
	}
	return s.retry(ctx, &j.sent, func(ctx context.Context) error { return s.attempt(ctx, j) })
}

// retry repeats what a race or a lost connection ended, for as long as the store's
// options say.
func (s *Store) retry(ctx context.Context, sent *bool, try func(context.Context) error) error {
	ctx = context.WithoutCancel(ctx)
	var failing time.Time
	pause, races := 5*time.Millisecond, 0
	for {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, statementPatience)
			defer cancel()
			return try(ctx)
		}()
		var answer *answered
		switch {
		case err == nil:
			return nil
		case errors.As(err, &answer):
			return answer.err
		case isRace(err) && races < maxRaces:
			races++
			continue
		case !isDown(err) && !errors.Is(err, context.DeadlineExceeded):
			if *sent {
				return fmt.Errorf("%w: %w", hansard.ErrUnknown, err)
			}
			return translate(err)
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		if time.Since(failing) < s.opt.RetryFor {
			select {
			case <-time.After(pause):
				pause = min(2*pause, 500*time.Millisecond)
				continue
			case <-s.closing:
			}
		}
		if *sent {
			return fmt.Errorf("%w: %w", hansard.ErrUnknown, err)
		}
		return &UnavailableError{err}
	}
}

// answered is the answer of a decision, as opposed to an error on the way to it.
type answered struct{ err error }

func (a *answered) Error() string { return a.err.Error() }

func answer(err error) error {
	if err == nil {
		return nil
	}
	return &answered{err}
}

// attempt is one transaction: lock and look in one round trip, change and commit
// in another.
func (s *Store) attempt(ctx context.Context, j *job) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // closes it when a transaction is open
	err = j.attempt(ctx, conn.Conn())
	leaveStandby(conn.Conn(), err)
	return err
}

func (j *job) attempt(ctx context.Context, conn *pgx.Conn) error {
	l, err := lock(ctx, conn, j)
	if err != nil {
		return err
	}
	if (j.sent || j.late) && j.arrived(l) {
		// The answer rests on a commit that we did not see end. Ours, which the
		// lock made one that is written, waits for whatever standby that has to
		// wait for; so will it have then.
		return j.finish(ctx, conn, l, nil, j.err)
	}
	j.sent = false
	c, verdict := j.decide(l)
	return j.finish(ctx, conn, l, c, verdict)
}

const (
	lockSession = "SELECT " + headColumns + " FROM hansard_heads h WHERE h.id = $1 FOR UPDATE"
	// The clock is asked by a statement of its own: in the one that locks it
	// might be read before the lock is there.
	readClock = "SELECT clock_timestamp()"
	findKeys  = "SELECT key, hash, seq, size FROM hansard_events WHERE id = $1 AND key = ANY($2)"
	findMark  = "SELECT seq FROM hansard_events WHERE id = $1 AND mark = $2"
	findMeta  = "SELECT title, labels, state FROM hansard_sessions WHERE id = $1"
)

// lock begins a transaction, locks the session's row and reads what the job needs.
// Each statement after the one that locks sees all that was committed before.
func lock(ctx context.Context, conn *pgx.Conn, j *job) (*locked, error) {
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue(lockSession, string(j.id))
	b.Queue(readClock)
	if len(j.keys) > 0 {
		b.Queue(findKeys, string(j.id), j.keys)
	}
	if j.sent || j.late {
		b.Queue(findMark, string(j.id), j.mark)
	}
	if j.meta {
		b.Queue(findMeta, string(j.id))
	}
	if j.ticket != "" {
		b.Queue(findAhead, string(j.id), j.ticket, staleTicket.Seconds())
	}
	res := conn.SendBatch(ctx, b)
	l, err := readLocked(res, j)
	if closeErr := res.Close(); err == nil {
		err = closeErr
	}
	return l, err
}

func readLocked(res pgx.BatchResults, j *job) (*locked, error) {
	if _, err := res.Exec(); err != nil {
		return nil, err
	}
	l := &locked{id: j.id, head: new(head), keys: make(map[string]stored)}
	if err := scanHead(res.QueryRow(), l.head); errors.Is(err, pgx.ErrNoRows) {
		l.head = nil
	} else if err != nil {
		return nil, err
	}
	if err := res.QueryRow().Scan(&l.now); err != nil {
		return nil, err
	}
	l.now = l.now.UTC()
	if len(j.keys) > 0 {
		if err := l.readKeys(res); err != nil {
			return nil, err
		}
	}
	if j.sent || j.late {
		if err := res.QueryRow().Scan(&l.mine); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
	}
	if j.meta {
		var title, labels, state string
		err := res.QueryRow().Scan(&title, &labels, &state)
		if err == nil {
			l.meta, err = scanMeta(title, labels, state)
		}
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
	}
	if j.ticket != "" {
		if err := res.QueryRow().Scan(&l.ahead); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *locked) readKeys(res pgx.BatchResults) error {
	found, err := res.Query()
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		var key string
		var k stored
		var first int64
		var size int
		if err := found.Scan(&key, &k.hash, &first, &size); err != nil {
			return err
		}
		k.first, k.last = hansard.Seq(first), hansard.Seq(first)+hansard.Seq(size)-1
		l.keys[key] = k
	}
	return found.Err()
}

// arrived tells whether the attempt whose outcome is open was committed.
func (j *job) arrived(l *locked) bool {
	j.at = hansard.Seq(l.mine)
	return l.mine > 0 || l.head != nil && l.head.mark == j.mark
}

// finish writes a change and commits.
func (j *job) finish(ctx context.Context, conn *pgx.Conn, l *locked, c *change, verdict error) error {
	b := &pgx.Batch{}
	if c != nil {
		j.err = verdict
		c.write(b, l, j.mark)
		j.sent = true
	}
	b.Queue("COMMIT")
	err := conn.SendBatch(ctx, b).Close()
	if err == nil {
		err = doubt(conn.PgConn())
	}
	if err == nil {
		j.sent = false
		return answer(verdict)
	}
	if !isDown(err) && !errors.Is(err, context.DeadlineExceeded) || neverSent(err) {
		j.sent = false // refused as a whole
	}
	return err
}

// newMark is a name that nobody else gives.
func newMark() string {
	var b [12]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

const (
	createHead    = `INSERT INTO hansard_heads (id, last, bytes, created, updated, mark) VALUES ($1, 0, 0, $2, $2, $3)`
	createMeta    = `INSERT INTO hansard_sessions (id, title, labels, state, born) VALUES ($1, $2, $3, $4, $5)`
	createListing = `INSERT INTO hansard_listing (id, label, listed) SELECT $1, l, $3 FROM unnest($2::text[]) AS l`
	updateLog     = `UPDATE hansard_heads SET last = $2, bytes = $3, updated = $4 WHERE id = $1`
	// shelve keeps a session's place in the list: see the schema. The condition
	// is on the listing itself, so a session listed a moment ago costs a look.
	shelve      = `UPDATE hansard_listing SET listed = $2 WHERE id = $1 AND (listed > $2 OR listed <= $2::timestamptz - interval '100 milliseconds')`
	updateMeta  = `UPDATE hansard_sessions SET title = $2, labels = $3, state = $4 WHERE id = $1`
	dropLabels  = `DELETE FROM hansard_listing WHERE id = $1 AND label <> ALL($2::text[])`
	moveListing = `UPDATE hansard_listing SET listed = $2 WHERE id = $1`
	addLabels   = `INSERT INTO hansard_listing (id, label, listed) SELECT $1, l, $3 FROM unnest($2::text[]) AS l ON CONFLICT (id, label) DO NOTHING`
	updateTurn  = `UPDATE hansard_heads SET current = $2, newest = $3, turn = $4, exclusive = $5, renewed = $6 WHERE id = $1`
	renewTurn   = `UPDATE hansard_heads SET renewed = $2 WHERE id = $1`
	removeHead  = `UPDATE hansard_heads SET deleted = true, purging = true, current = '', turn = '', exclusive = false, mark = $2 WHERE id = $1`
	removeMeta  = `DELETE FROM hansard_sessions WHERE id = $1`
	removeList  = `DELETE FROM hansard_listing WHERE id = $1`
	removeWait  = `DELETE FROM hansard_waiting WHERE id = $1`
)

// write queues the statements of a change.
func (c *change) write(b *pgx.Batch, l *locked, mark string) {
	id := string(l.id)
	if c.create != nil {
		title, labels, state := metaRow(*c.create)
		born, _ := json.Marshal(bornMeta{title, c.create.Labels, state}) // strings: can't fail
		b.Queue(createHead, id, c.head.created, mark)
		b.Queue(createMeta, id, title, labels, state, string(born))
		b.Queue(createListing, id, listingLabels(c.create.Labels), c.head.created)
	}
	if n := c.rows.len(); n > 0 {
		c.rows.marks[0] = &mark
		after := c.head.last - hansard.Seq(n)
		c.rows.insert(b, l.id, after, c.head.updated)
		b.Queue(updateLog, id, int64(c.head.last), c.head.bytes, c.head.updated)
		if c.meta == nil {
			b.Queue(shelve, id, c.head.updated)
		}
	}
	if c.meta != nil {
		title, labels, state := metaRow(*c.meta)
		b.Queue(updateMeta, id, title, labels, state)
		listing := listingLabels(c.meta.Labels)
		b.Queue(dropLabels, id, listing)
		b.Queue(moveListing, id, c.head.updated)
		b.Queue(addLabels, id, listing, c.head.updated)
	}
	if c.turn {
		c.writeTurn(b, id)
	}
	if c.renew {
		b.Queue(renewTurn, id, l.now)
	}
	if c.remove {
		b.Queue(removeHead, id, mark)
		b.Queue(removeMeta, id)
		b.Queue(removeList, id)
		b.Queue(removeWait, id)
	}
	if c.more != nil {
		c.more(b)
	}
}

func (c *change) writeTurn(b *pgx.Batch, id string) {
	t := c.head.turn
	if t == nil {
		b.Queue(updateTurn, id, "", string(c.head.newest), "", false, nil)
		return
	}
	stored := *t
	stored.Renewed = time.Time{}
	text, _ := json.Marshal(stored) // strings and numbers: can't fail
	b.Queue(updateTurn, id, string(t.Grant), string(c.head.newest), string(text), t.Exclusive, t.Renewed)
}

// bornMeta is what a session was created with, its state byte for byte.
type bornMeta struct {
	Title  string            `json:"title,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	State  string            `json:"state,omitempty"`
}

// maxSeq is the largest seq the tables can hold.
const maxSeq = math.MaxInt64
