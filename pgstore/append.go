package pgstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"hansard"
	"hansard/engine"
)

// send stores a group of appends to one session and sets their answers. Most
// groups are one statement; the others are decided while the row is locked. It waits for
// the row as long as it takes.
func (s *Store) send(id hansard.SessionID, group []*request) {
	if p, ok := newPlain(id, group); ok {
		s.sendAlone(p)
		return
	}
	s.decideGroup(&job{id: id}, group, nil)
}

// reserve waits until there may be one more that waits for a locked row, see mayWait and
// mayLock. It is given back after each try: a call that only waits for the database to come
// back must not keep others from trying.
func (s *Store) reserve(ctx context.Context, appends bool) error {
	if appends {
		select {
		case s.mayWait <- struct{}{}:
		case <-ctx.Done():
			return &unsent{ctx.Err()}
		}
	}
	select {
	case s.mayLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		if appends {
			<-s.mayWait
		}
		return &unsent{ctx.Err()}
	}
}

// tryReserve is reserve for an append that does not wait.
func (s *Store) tryReserve() bool {
	select {
	case s.mayWait <- struct{}{}:
	default:
		return false
	}
	select {
	case s.mayLock <- struct{}{}:
		return true
	default:
		<-s.mayWait
		return false
	}
}

// unreserve gives back what was reserved.
func (s *Store) unreserve(appends bool) {
	<-s.mayLock
	if appends {
		<-s.mayWait
	}
}

// reserved gives f a connection for writes that are neither appends nor decisions, and that
// wait, too, where a row is locked or no commit is answered.
func (s *Store) reserved(ctx context.Context, f func(conn *pgxpool.Conn) error) error {
	if err := s.reserve(ctx, false); err != nil {
		return err
	}
	defer s.unreserve(false)
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return f(conn)
}

// execReserved executes one statement that needs such a connection.
func (s *Store) execReserved(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = s.reserved(ctx, func(conn *pgxpool.Conn) error {
		tag, err = conn.Exec(ctx, sql, args...)
		return err
	})
	return tag, err
}

// rowReserved is execReserved for a statement that returns one row.
func (s *Store) rowReserved(ctx context.Context, into []any, sql string, args ...any) error {
	return s.reserved(ctx, func(conn *pgxpool.Conn) error { return conn.QueryRow(ctx, sql, args...).Scan(into...) })
}

// sendAlone stores a combined group by a statement of its own.
func (s *Store) sendAlone(p *plain) {
	ctx, cancel := context.WithTimeout(context.Background(), statementPatience)
	defer cancel()
	if err := s.reserve(ctx, true); err != nil {
		s.settle(p, err)
		return
	}
	s.sendReserved(p)
}

// sendReserved is sendAlone for a caller that has reserved, and gives the reservation back.
func (s *Store) sendReserved(p *plain) {
	last, err := s.sendPlain(p)
	s.unreserve(true)
	switch {
	case err == nil && last > 0:
		p.stored(s, last)
	case err != nil && !isRace(err) && !isDown(err) && !errors.Is(err, context.DeadlineExceeded):
		refuse(p.group, translate(err))
	default:
		s.settle(p, err)
	}
}

// stored answers a group whose last event has this seq.
func (p *plain) stored(s *Store, last hansard.Seq) {
	p.answer(p.id, last-hansard.Seq(p.rows.len())+1)
	s.hub.changed(p.id, last)
}

// settle decides a group whose statement did not store it, or may not have: it was refused
// (no error), lost a race, or its outcome is unknown.
func (s *Store) settle(p *plain, err error) {
	j := &job{id: p.id}
	if err != nil && !isRace(err) && !neverSent(err) {
		// It may be stored. The job looks for it first of all.
		j.sent, j.late, j.mark = true, true, p.mark
	}
	s.decideGroup(j, p.group, p)
}

func refuse(group []*request, err error) {
	for _, r := range group {
		r.receipt, r.err = hansard.Receipt{}, err
	}
}

// plain is a group that one statement can store: no metadata changes, no attachments,
// and all conditions together are one condition on the session's row.
type plain struct {
	id     hansard.SessionID
	group  []*request
	rows   rows
	keys   []string      // of the batches that have one
	ids    []string      // of the events that have one
	turn   hansard.Grant // that some of the batches need
	free   bool          // some need that no exclusive turn is held
	expect *int64
	mark   string
}

// newPlain combines a group, if it can be.
func newPlain(id hansard.SessionID, group []*request) (*plain, bool) {
	p := &plain{id: id, group: group, keys: []string{}, ids: []string{}}
	seen, seenIDs := make(map[string]bool), make(map[string]bool)
	for _, r := range group {
		switch {
		case r.patch != nil, len(r.rows.named()) > 0, r.key != "" && seen[r.key]:
			return nil, false
		case r.turn != "" && p.turn != "" && p.turn != r.turn:
			return nil, false
		case r.expect != nil && *r.expect > maxSeq:
			return nil, false
		}
		if r.expect != nil {
			// Where the group as a whole has to begin for this to be right.
			begin := int64(*r.expect) - int64(p.rows.len())
			if begin < 0 || p.expect != nil && *p.expect != begin {
				return nil, false
			}
			p.expect = &begin
		}
		if r.turn != "" {
			p.turn = r.turn
		} else if !r.inbox {
			p.free = true
		}
		if r.key != "" {
			seen[r.key] = true
			p.keys = append(p.keys, r.key)
		}
		for _, n := range r.names {
			if n.ID == "" {
				continue
			}
			if seenIDs[n.ID] {
				return nil, false
			}
			seenIDs[n.ID] = true
			p.ids = append(p.ids, n.ID)
		}
		if len(group) == 1 {
			p.rows = r.rows // nobody changes it
		} else {
			p.rows.join(&r.rows)
		}
	}
	p.mark = newMark()
	return p, true
}

// appendPlain is an append in one statement. The row's lock orders appends: if the
// statement has to wait for it, the conditions are checked again on the row as it is then.
// Keys and ids that were added meanwhile are not seen here, but their indexes refuse to
// take them twice. The clock is read for each version of the row: once more after a wait
// for a transaction that changed it. (After a wait for one that only locked it the time is
// from before the wait; nothing was stored meanwhile, so no stored event has a later time.)
var appendPlain = `WITH head AS (
	UPDATE hansard_heads SET last = last + $19::integer, bytes = bytes + $20::bigint, updated = clock_timestamp()
	WHERE id = $1 AND NOT deleted AND ($21::text = '' OR current = $21) AND NOT ($22::boolean AND exclusive) AND ($23::bigint IS NULL OR last = $23)
		AND NOT EXISTS (` + knownKeys("1", "$24") + `) AND NOT EXISTS (` + knownIDs("1", "$25") + `)
	RETURNING last, updated, ` + shelfLeft + ` AS shelf
), added AS (
	` + insertColumns + ` SELECT $1, head.last - $19 + e.n, head.updated, ` + insertValues + ` FROM head, ` + insertFrom + `
)
SELECT last, shelf, ` + durably("$26") + ` FROM head`

// appendOne is appendPlain for one event, which is what most appends are: without arrays it
// costs the database a third less.
//
// appendShelved is appendOne for a session whose place in the list is known to be right:
// that is one of its conditions, so no second statement has to look. The time is kept
// within what was checked, in case the clock jumps in between.
//
// namedOne and namedShelved are for an event with a key or an id. Most have neither, and
// are a quarter cheaper without looking for known ones.
var (
	appendOne, namedOne         = oneEvent("clock_timestamp()", "")
	appendShelved, namedShelved = oneEvent("least(greatest(clock_timestamp(), listed), listed + "+spanSQL+" - interval '1 microsecond')",
		" AND clock_timestamp() >= listed AND clock_timestamp() < listed + "+spanSQL)
)

func oneEvent(now, condition string) (bare, named string) {
	statement := func(unknown, columns, values string) string {
		return `WITH head AS (
	UPDATE hansard_heads SET last = last + 1, bytes = bytes + octet_length($2::text), updated = ` + now + `
	WHERE id = $1 AND NOT deleted AND ($3::text = '' OR current = $3) AND NOT ($4::boolean AND exclusive) AND ($5::bigint IS NULL OR last = $5)` + unknown + condition + `
	RETURNING last, updated, ` + shelfLeft + ` AS shelf
), added AS (
	INSERT INTO hansard_events (id, seq, "time", kind, role, author, turn, data, inbox, size, mark, "by", "at"` + columns + `)
	SELECT $1, last, updated, $6::text, $7::text, $8::text, $3, $2, $9::boolean, $10::integer, $11::text, $12::text, $13::timestamptz` + values + ` FROM head
)
SELECT last, shelf, ` + durably("$14") + ` FROM head`
	}
	return statement("", "", ""), statement(`
		AND NOT EXISTS (SELECT 1 FROM hansard_events k WHERE k.id = $1 AND k.key = $15::text) AND NOT EXISTS (SELECT 1 FROM hansard_events i WHERE i.id = $1 AND i.event_id = $16::text)`,
		", key, event_id, hash, content", ", $15, $16, $17::text, $18::text")
}

// queue queues the statement that stores a combined group.
func (p *plain) queue(b *pgx.Batch, durable, shelved bool) {
	r := &p.rows
	switch {
	case r.len() > 1:
		b.Queue(appendPlain, r.args(p.id, p.mark, r.len(), r.bytes, string(p.turn), p.free, p.expect, p.keys, p.ids, durable)...)
	default:
		e := &r.list[0]
		sql, named := appendOne, namedOne
		if shelved {
			sql, named = appendShelved, namedShelved
		}
		args := []any{string(p.id), e.data, string(p.turn), p.free, p.expect, e.kind, e.role, e.author, e.inbox, e.size, p.mark, e.by, e.at, durable}
		if e.key != nil || e.id != nil {
			sql, args = named, append(args, e.key, e.id, e.hash, e.content)
		}
		b.Queue(sql, args...)
		if shelved {
			return
		}
	}
	b.Queue(shelve, string(p.id), p.mark)
}

// sendPlain sends a combined group and, unless the session's place in the list is known to
// be right, puts it right in the same round trip and commit. That takes a statement of its
// own: a statement that had to wait for the row sees the list as it was before, without the
// rows added by the transaction it waited for. No last seq and no error means that the
// conditions did not hold, for whatever reason.
func (s *Store) sendPlain(p *plain) (last hansard.Seq, err error) {
	// Not the context of a caller: several wait for it, and ending it would leave the
	// outcome open for all of them.
	ctx, cancel := context.WithTimeout(context.Background(), statementPatience)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, &unsent{err}
	}
	defer conn.Release()
	b := &pgx.Batch{}
	p.queue(b, !s.asked("synchronous_commit"), s.shelves.fresh(p.id))
	var n int64
	var left float64
	stored, err := sendRow(ctx, conn.Conn(), b, &n, &left, nil)
	leaveStandby(conn.Conn(), err)
	if err == nil && stored {
		err = doubt(conn.Conn().PgConn())
	}
	if err == nil {
		s.shelves.learn(p.id, left) // nothing left, if it was refused
	}
	return hansard.Seq(n), err
}

// sendRow sends statements, the first of which returns a row or none.
func sendRow(ctx context.Context, conn *pgx.Conn, b *pgx.Batch, into ...any) (found bool, err error) {
	if b.Len() == 1 { // without a batch it takes less time
		q := b.QueuedQueries[0]
		if err = conn.QueryRow(ctx, q.SQL, q.Arguments...).Scan(into...); errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return true, err
	}
	res := conn.SendBatch(ctx, b)
	err = res.QueryRow().Scan(into...)
	found = !errors.Is(err, pgx.ErrNoRows)
	if closeErr := res.Close(); !found || err == nil {
		err = closeErr
	}
	return found, err
}

// answer sets the answers of a group that was stored from first on. same means that they
// were set to the same before.
func (p *plain) answer(id hansard.SessionID, first hansard.Seq) (same bool) {
	same = true
	for _, r := range p.group {
		n := hansard.Seq(r.rows.len())
		receipt := hansard.Receipt{Session: id, First: first, Last: first + n - 1}
		for i := range r.names { // nil without ids
			receipt.Seqs = append(receipt.Seqs, first+hansard.Seq(i))
		}
		same = same && r.err == nil && reflect.DeepEqual(r.receipt, receipt)
		r.receipt, r.err = receipt, nil
		first += n
	}
	return same
}

// decideGroup decides a group's requests one by one, each on the state the one
// before leaves, while the row is locked. sent is the plain group whose outcome is
// open, if there is one.
func (s *Store) decideGroup(j *job, group []*request, sent *plain) {
	for _, r := range group {
		if r.key != "" {
			j.keys = append(j.keys, r.key)
		}
		for _, n := range r.names {
			if n.ID != "" {
				j.ids = append(j.ids, n.ID)
			}
		}
		j.digests = append(j.digests, digests(r.rows.named())...)
		j.meta = j.meta || r.patch != nil
		j.bytes += r.rows.sending()
	}
	j.appends = true
	var first, last hansard.Seq // of what was decided
	j.decide = func(l *locked) (*change, error) {
		refuse(group, nil)
		c := (&decision{locked: l, group: group}).run()
		first, last = 0, 0
		if c != nil {
			first, last = c.head.last-hansard.Seq(c.rows.len())+1, c.head.last
		} else if j.late {
			settleOnly(group)
		}
		return c, nil
	}
	if err := s.decide(context.Background(), j); err != nil {
		if j.late && !errors.Is(err, hansard.ErrUnknown) {
			err = fmt.Errorf("%w: the connection was lost, and then: %w", hansard.ErrUnknown, err)
		}
		refuse(group, err)
		return
	}
	if j.late && j.at > 0 {
		// Something is stored under the mark: by what was decided, or by the plain
		// statement. If both would begin at the same seq they can't be distinguished,
		// unless the answers are the same.
		if same := sent.answer(j.id, j.at); !same && j.at == first {
			refuse(group, fmt.Errorf("%w: the connection was lost twice", hansard.ErrUnknown))
		}
		last = max(last, j.at+hansard.Seq(sent.rows.len())-1)
	}
	if last > 0 {
		s.hub.changed(j.id, last)
	}
}

// settleOnly withdraws the refusals that may not be final, of a group whose plain statement
// may still arrive: nothing was stored under its mark, so the statement may yet find its
// conditions met.
func settleOnly(group []*request) {
	for _, r := range group {
		var conflict *hansard.ConflictError
		forEver := errors.Is(r.err, hansard.ErrDeleted) || errors.Is(r.err, hansard.ErrKeyReused) || errors.Is(r.err, hansard.ErrIDReused) || errors.Is(r.err, hansard.ErrFenced) ||
			errors.As(r.err, &conflict) && conflict.Expected < conflict.Actual
		if r.err != nil && !forEver {
			r.err = fmt.Errorf("%w: the connection was lost, and then: %v", hansard.ErrUnknown, r.err)
		}
	}
}

// decision is the contract's append on a locked session, for one request after
// another.
type decision struct {
	*locked
	group []*request
	c     *change
	new   map[string]stored       // keys of this group
	named map[string]engine.Known // ids of this group
}

func (d *decision) run() *change {
	d.new, d.named = make(map[string]stored), make(map[string]engine.Known)
	for _, r := range d.group {
		r.err = d.append(r)
	}
	return d.c
}

// append decides one request. The order of the checks is part of the contract.
func (d *decision) append(r *request) error {
	h, meta, exists := d.state()
	switch err := h.find(d.id); {
	case err == nil:
	case h == nil && r.create:
		h, meta = &head{created: d.now, updated: d.now}, r.meta
	default:
		return err
	}
	if r.key != "" {
		if old, known := d.known(r.key); known {
			if !engine.SameKeyContent(old.hash, r.hash) {
				return &hansard.KeyReusedError{Session: d.id, Key: r.key, First: old.first, Last: old.last}
			}
			r.receipt = hansard.Receipt{Session: d.id, First: old.first, Last: old.last, Replayed: true,
				Seqs: engine.ReplayedSeqs(r.names, old.first, old.last, d.knownID)}
			return nil
		}
	}
	sifted, err := d.sift(r)
	if err != nil {
		return err
	}
	if sifted.Len() == 0 {
		r.receipt = sifted.Receipt(d.id, 0)
		return nil
	}
	gone, err := d.fence(h, r.turn, r.inbox)
	if err != nil {
		return err
	}
	if r.expect != nil && *r.expect != h.last {
		return &hansard.ConflictError{Session: d.id, Expected: *r.expect, Actual: h.last}
	}
	added := &r.rows
	if r.names != nil {
		added = r.rows.pick(&sifted, batch{r.turn, r.key, r.hash, r.apart})
	}
	if err := engine.CheckNamed(d.id, added.named(), d.attachedSize); err != nil {
		return err
	}
	if sifted.Patch {
		if meta, err = engine.ApplyPatch(d.id, meta, r.patch); err != nil {
			return err
		}
	}
	if d.c == nil {
		d.c = &change{head: *h}
		if !exists {
			d.c.create = &r.meta
		}
	}
	if gone != "" {
		if err := d.c.endTurn(gone, r.rows.list[0].by); err != nil {
			return err
		}
	}
	h = &d.c.head
	r.receipt = sifted.Receipt(d.id, h.last+1)
	r.receipt.Created = !exists
	if sifted.Patch {
		d.c.meta = &meta
	}
	if r.names != nil {
		d.remember(added, h.last, r.patch)
	}
	d.c.rows.join(added)
	h.last = r.receipt.Last
	h.bytes += added.bytes
	h.updated = d.now
	if r.key != "" {
		d.new[r.key] = stored{hash: r.hash, first: r.receipt.First, last: r.receipt.Last}
	}
	return nil
}

// state is the session as the requests before have left it.
func (d *decision) state() (h *head, m hansard.Meta, exists bool) {
	h, m = d.head, d.meta
	if d.c != nil {
		h = &d.c.head
		if d.c.meta != nil {
			m = *d.c.meta
		}
	}
	return h, m, h != nil
}

func (d *decision) known(key string) (stored, bool) {
	if k, ok := d.new[key]; ok {
		return k, true
	}
	k, ok := d.keys[key]
	return k, ok
}

// sift decides what of a request is new to the session.
func (d *decision) sift(r *request) (engine.Sifted, error) {
	if r.names == nil {
		return engine.AllNew(r.rows.len(), r.patch != nil), nil
	}
	return engine.Sift(d.id, r.names, engine.PatchHash(r.patch), d.knownID)
}

// remember notes the ids of rows that are stored behind a seq, for the requests of the
// group that come after.
func (d *decision) remember(r *rows, after hansard.Seq, patch *hansard.Patch) {
	for i := range r.list {
		e := &r.list[i]
		if e.id == nil {
			continue
		}
		k := engine.Known{Seq: after + hansard.Seq(i) + 1, Content: *e.content}
		if e.patch != nil {
			k.Patch = engine.PatchHash(patch)
		}
		d.named[*e.id] = k
	}
}

func (d *decision) knownID(id string) (engine.Known, bool) {
	if k, ok := d.named[id]; ok {
		return k, true
	}
	k, ok := d.ids[id]
	return k, ok
}
