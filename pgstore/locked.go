package pgstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
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
	keys map[string]stored       // those of the job's keys that are known
	ids  map[string]engine.Known // those of the job's ids that are known
	mine int64                   // the seq under which the job's mark is known, or 0
	// attached are those of the job's attachments that are there. They stay until the
	// commit.
	attached map[string]knownAttachment
	uploaded int64 // the size of the job's upload, -1 if it is not there
	// events are those of the job's seqs that are there, without their data.
	events map[hansard.Seq]hansard.Event
	// ahead, for a claim on the turn: another claim has waited for longer.
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
	reuse  bool          // and another one of the id was deleted
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
	id      hansard.SessionID
	keys    []string
	ids     []string // of events
	digests []string // of attachments
	upload  string   // the name of one
	seqs    []int64  // of events
	meta    bool
	ticket  string // of a claim on the turn
	// decide is called with the row locked, and again when the transaction has to be
	// repeated. A change that comes with an error is committed too, and the error is the
	// answer. Without a change there is a commit as well, so that every answer rests on
	// what is durable.
	decide func(l *locked) (*change, error)

	bytes   int64  // about what the change has to send
	idle    string // how long the server waits for us while the row is locked, in milliseconds
	durable bool   // the commit has to be durable
	// patience is how long an attempt may take; 0 is statementPatience.
	patience time.Duration
	appends  bool // an attempt is one of those that mayWait counts

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
	if j.idle == "" && !s.asked("idle_in_transaction_session_timeout") {
		j.idle = milliseconds(idleInside + time.Duration(j.bytes/slowest)*time.Millisecond)
	}
	j.durable = !s.asked("synchronous_commit")
	return s.retryFor(ctx, cmp.Or(j.patience, statementPatience), &j.sent, func(ctx context.Context) error { return s.attempt(ctx, j) })
}

// slowest is the speed of the slowest network on which a batch of any size gets through in
// time, in bytes per millisecond.
const slowest = 256

// retry repeats what failed by a race or a lost connection, for as long as the store's
// options say.
func (s *Store) retry(ctx context.Context, sent *bool, try func(context.Context) error) error {
	return s.retryFor(ctx, statementPatience, sent, try)
}

// retryFor is retry for something that may take as long as patience each time.
func (s *Store) retryFor(ctx context.Context, patience time.Duration, sent *bool, try func(context.Context) error) error {
	ctx = context.WithoutCancel(ctx)
	var failing time.Time
	pause, races := 5*time.Millisecond, 0
	for {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, patience)
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
	if err := s.reserve(ctx, j.appends); err != nil {
		return err
	}
	defer s.unreserve(j.appends)
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return &unsent{err}
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
		// The answer rests on an earlier commit whose end we did not see. Our own
		// transaction has locked a row, so its commit is written, and waits for the
		// standbys it has to wait for: by then they have the earlier one, too.
		return j.finish(ctx, conn, l, nil, j.err)
	}
	j.sent = false
	c, verdict := j.decide(l)
	return j.finish(ctx, conn, l, c, verdict)
}

// readClock asks for the time in a statement of its own: in the one that locks it might be
// read before the lock is there. The settings made with it are for the transaction: those
// of the connection may be another client's, if there is a connection pooler in between.
var readClock = "SELECT clock_timestamp(), CASE WHEN $1::text <> '' THEN set_config('idle_in_transaction_session_timeout', $1, true) END, " + durably("$2")

const (
	lockSession = "SELECT " + headColumns + " FROM hansard_heads h WHERE h.id = $1 FOR UPDATE"
	findMark    = "SELECT seq FROM hansard_events WHERE id = $1 AND mark = $2"
	findMeta    = "SELECT title, labels, state FROM hansard_sessions WHERE id = $1"
)

// durably makes sure, if asked to, that the commit of the transaction is durable before it
// is answered, whatever the defaults of the database or the role are. Stronger settings are
// left alone. It is read when the transaction commits, so that the statement which commits
// by itself can have it too.
func durably(asked string) string {
	return "CASE WHEN " + asked + "::boolean AND current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END"
}

var findKeys = knownKeys("known.key, known.hash, known.seq, known.size", "$2")

// knownKeys selects columns of those keys, of an array, that the session $1 has. Each
// is looked up by itself, and LIMIT keeps it so: with key = ANY(array), and the array
// unknown when the plan is made, PostgreSQL can't use the index of the keys as far as
// the key, and reads all keys of the session.
func knownKeys(columns, array string) string {
	return "SELECT " + columns + ` FROM unnest(` + array + `::text[]) AS asked(key)
		CROSS JOIN LATERAL (SELECT k.key, k.hash, k.seq, k.size FROM hansard_events k WHERE k.id = $1 AND k.key = asked.key LIMIT 1) AS known`
}

var findIDs = knownIDs("known.event_id, known.seq, known.content, known.patch", "$2")

// knownIDs is knownKeys for the ids of events.
func knownIDs(columns, array string) string {
	return "SELECT " + columns + ` FROM unnest(` + array + `::text[]) AS named(id)
		CROSS JOIN LATERAL (SELECT i.event_id, i.seq, i.content, i.patch FROM hansard_events i WHERE i.id = $1 AND i.event_id = named.id LIMIT 1) AS known`
}

// lock begins a transaction, locks the session's row and reads what the job needs.
// Each statement after the one that locks sees all that was committed before.
func lock(ctx context.Context, conn *pgx.Conn, j *job) (*locked, error) {
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	b.Queue(lockSession, string(j.id))
	b.Queue(readClock, j.idle, j.durable)
	if len(j.keys) > 0 {
		b.Queue(findKeys, string(j.id), j.keys)
	}
	if len(j.ids) > 0 {
		b.Queue(findIDs, string(j.id), j.ids)
	}
	if len(j.digests) > 0 {
		b.Queue(findAttached, string(j.id), j.digests)
	}
	if j.upload != "" {
		b.Queue(findUpload, string(j.id), j.upload)
	}
	if len(j.seqs) > 0 {
		b.Queue(findSeqs, string(j.id), j.seqs)
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
	l := &locked{id: j.id, head: new(head), keys: make(map[string]stored), ids: make(map[string]engine.Known)}
	if err := scanHead(res.QueryRow(), l.head); errors.Is(err, pgx.ErrNoRows) {
		l.head = nil
	} else if err != nil {
		return nil, err
	}
	if err := res.QueryRow().Scan(&l.now, nil, nil); err != nil {
		return nil, err
	}
	l.now = l.now.UTC()
	if len(j.keys) > 0 {
		if err := l.readKeys(res); err != nil {
			return nil, err
		}
	}
	if len(j.ids) > 0 {
		if err := l.readIDs(res); err != nil {
			return nil, err
		}
	}
	if err := l.readAttached(res, j); err != nil {
		return nil, err
	}
	if len(j.seqs) > 0 {
		if err := l.readSeqs(res); err != nil {
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

func (l *locked) readIDs(res pgx.BatchResults) error {
	found, err := res.Query()
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		var id string
		var seq int64
		var k engine.Known
		var patch *string
		if err := found.Scan(&id, &seq, &k.Content, &patch); err != nil {
			return err
		}
		k.Seq, k.Redacted = hansard.Seq(seq), k.Content == ""
		if patch != nil {
			p := new(hansard.Patch)
			if err := json.Unmarshal([]byte(*patch), p); err != nil {
				return &unreadable{fmt.Sprintf("the patch of seq %d", seq), err}
			}
			k.Patch = engine.PatchHash(p)
		}
		l.ids[id] = k
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

// newMark returns a name that nobody else uses.
func newMark() string {
	var b [12]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

const (
	createHead = `INSERT INTO hansard_heads (id, last, bytes, created, updated, listed, mark, parent, parent_at) VALUES ($1, 0, 0, $2, $2, $2, $3, $4, $5)`
	// What is left of the deleted session, because its removal was not finished, is removed
	// together with its head.
	reuseHead = `UPDATE hansard_heads SET last = 0, bytes = 0, created = $2, updated = $2, listed = $2, deleted = false, purging = false, exclusive = false, current = '', newest = '', turn = '', renewed = NULL, mark = $3
		WHERE id = $1`
	reuseEvents   = `DELETE FROM hansard_events WHERE id = $1`
	reuseParts    = `DELETE FROM hansard_attachment_parts WHERE id = $1`
	reuseAttached = `DELETE FROM hansard_attachments WHERE id = $1`
	createMeta    = `INSERT INTO hansard_sessions (id, title, labels, state, born, terms, said) VALUES ($1, $2, $3, $4, $5, $6::text::tsvector, hashtextextended($2::text || $3::text, 0))`
	createListing = `INSERT INTO hansard_listing (id, label, listed) SELECT $1, l, $3 FROM unnest($2::text[]) AS l`
	updateLog     = `UPDATE hansard_heads SET last = $2, bytes = $3, updated = $4 WHERE id = $1`
	updateMeta    = `UPDATE hansard_sessions SET title = $2, labels = $3, state = $4, terms = $5::text::tsvector, said = hashtextextended($2::text || $3::text, 0) WHERE id = $1`
	dropLabels    = `DELETE FROM hansard_listing WHERE id = $1 AND label <> ALL($2::text[])`
	addLabels     = `INSERT INTO hansard_listing (id, label, listed) SELECT $1, l, h.listed FROM hansard_heads h, unnest($2::text[]) AS l WHERE h.id = $1
		ON CONFLICT (id, label) DO NOTHING`
	updateTurn = `UPDATE hansard_heads SET current = $2, newest = $3, turn = $4, exclusive = $5, renewed = $6 WHERE id = $1`
	renewTurn  = `UPDATE hansard_heads SET renewed = $2 WHERE id = $1`
	removeHead = `UPDATE hansard_heads SET deleted = true, purging = true, current = '', turn = '', exclusive = false, mark = $2, parent = NULL, parent_at = NULL WHERE id = $1`
	removeMeta = `DELETE FROM hansard_sessions WHERE id = $1`
	removeList = `DELETE FROM hansard_listing WHERE id = $1`
	removeWait = `DELETE FROM hansard_waiting WHERE id = $1`
)

// shelve keeps a session's place in the list right enough: see span. It follows a statement
// that stored something under a mark, so the row is locked. Most of the time it only looks
// at that row.
var shelve = `WITH due AS (
	UPDATE hansard_heads h SET listed = h.updated
	WHERE h.id = $1 AND ` + shelfDue + ` AND EXISTS (SELECT 1 FROM hansard_events e WHERE e.id = $1 AND e.mark = $2)
	RETURNING h.id, h.updated
)
UPDATE hansard_listing SET listed = (SELECT updated FROM due) WHERE id = (SELECT id FROM due)`

// write queues the statements of a change.
func (c *change) write(b *pgx.Batch, l *locked, mark string) {
	id := string(l.id)
	n := c.rows.len()
	if n > 0 {
		// First, because it may be large. Until all of it is there the server waits
		// for the next statement of a transaction, which has a timeout of the right
		// length, and not for the rest of what it has begun.
		c.rows.insert(b, l.id, mark, c.head.last-hansard.Seq(n), c.head.updated)
	}
	l.writeNamed(b, &c.rows)
	if c.create != nil {
		title, labels, state := metaRow(*c.create)
		born, _ := json.Marshal(bornMeta{title, c.create.Labels, state}) // strings: can't fail
		parent, at := parentRow(c.head.parent)
		if c.reuse {
			for _, sql := range []string{reuseEvents, reuseParts, reuseAttached, removeWait, removeWords} {
				b.Queue(sql, id)
			}
			b.Queue(reuseHead, id, c.head.created, mark)
		} else {
			b.Queue(createHead, id, c.head.created, mark, parent, at)
		}
		b.Queue(createMeta, id, title, labels, state, string(born), termsOf(l.id, title, c.create.Labels))
		b.Queue(createListing, id, listingLabels(c.create.Labels), c.head.created)
	}
	if n > 0 {
		b.Queue(updateLog, id, int64(c.head.last), c.head.bytes, c.head.updated)
	}
	if c.meta != nil {
		title, labels, state := metaRow(*c.meta)
		b.Queue(updateMeta, id, title, labels, state, termsOf(l.id, title, c.meta.Labels))
		was := l.meta.Labels
		if c.create != nil {
			was = c.create.Labels
		}
		if !maps.Equal(was, c.meta.Labels) {
			listing := listingLabels(c.meta.Labels)
			b.Queue(dropLabels, id, listing)
			b.Queue(addLabels, id, listing)
		}
	}
	if n > 0 {
		b.Queue(shelve, id, mark)
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
