package httpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
)

// door is the store as the holder of a token sees it: sessions out of its scope do not
// exist, its writes carry the token's name, and it can't use grants of another token. The
// caller is taken from the context; without one everything is refused.
type door struct {
	hansard.Store

	mu      sync.Mutex // guards holders
	holders map[held]string
}

// held is a grant of a session's turn. The token it was given to never changes.
type held struct {
	id    hansard.SessionID
	grant hansard.Grant
}

// maxHolders bounds the cache of holders. They can be looked up again.
const maxHolders = 10_000

// pass checks that a caller may access a session, and use a grant.
func (d *door) pass(ctx context.Context, id hansard.SessionID, g hansard.Grant) (caller, error) {
	who := callerOf(ctx)
	if who.user == nil {
		return who, fmt.Errorf("%w: nobody asks", hansard.ErrNotFound)
	}
	if hansard.CheckID(id) != nil {
		return who, nil // the store reports what is wrong with it
	}
	if err := d.inScope(ctx, who, id); err != nil || g == "" {
		return who, err
	}
	to, err := d.holder(ctx, held{id, g})
	if err == nil && to != "" && to != who.Name {
		err = &notYours{id, g}
	}
	return who, err
}

// inScope returns an error if a session does not exist for a caller.
func (d *door) inScope(ctx context.Context, who caller, id hansard.SessionID) error {
	if !who.Scope.named(id) {
		return who.notThere(id)
	}
	if len(who.Scope.Labels) == 0 {
		return nil
	}
	info, err := d.Store.Stat(ctx, id)
	switch {
	case errors.Is(err, hansard.ErrNotFound):
		// Not in the store's own words: they would tell it from a session out of scope.
		return who.quiet().notThere(id)
	case errors.Is(err, hansard.ErrDeleted): // its labels are no longer known
		return who.notThere(id)
	case err != nil:
		return err
	case !who.Scope.has(&info):
		return who.notThere(id)
	}
	return nil
}

// notThere is the answer for a session that is out of scope: the same as if it had never
// existed.
func (c caller) notThere(id hansard.SessionID) error {
	if c.outside != nil {
		c.outside.Store(true)
	}
	return fmt.Errorf("%w: %s", hansard.ErrNotFound, id)
}

// quiet is the caller, without recording that it asks for something out of scope.
func (c caller) quiet() caller {
	c.outside = nil
	return c
}

// wholeStore refuses requests that concern all sessions if the token is only for some.
func wholeStore(ctx context.Context) error {
	if callerOf(ctx).Scope.All() {
		return nil
	}
	return wire.NewProblem("missing-right", "this concerns the whole store, and the token is for some of its sessions", "use a token without a scope")
}

// holder returns the name of the token that a grant was given to; empty if it was not
// given to a token, or is not the current grant, which the store then refuses.
func (d *door) holder(ctx context.Context, h held) (string, error) {
	d.mu.Lock()
	name, known := d.holders[h]
	d.mu.Unlock()
	if known {
		return name, nil
	}
	t, err := d.Store.Turn(ctx, h.id)
	if err != nil || t == nil || t.Grant != h.grant {
		return "", nil // the store reports what is wrong where it orders writes
	}
	d.remember(h, t.By)
	return t.By, nil
}

func (d *door) remember(h held, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.holders) >= maxHolders {
		clear(d.holders)
	}
	d.holders[h] = name
}

// notYours refuses a grant that was given to another token.
type notYours struct {
	session hansard.SessionID
	grant   hansard.Grant
}

func (e *notYours) Error() string {
	return fmt.Sprintf("fenced: grant %s of session %s was given to another token", e.grant, e.session)
}
func (e *notYours) Is(target error) bool { return target == hansard.ErrFenced }
func (e *notYours) Hint() string {
	return "acquire the turn with this token, or use the one it was acquired with"
}

// masked removes from an error what the caller may not know. A caller without the right to read
// learns that the turn is held, but not by whom: the holder's description is content that
// others wrote.
func masked(ctx context.Context, err error) error {
	var held *hansard.HeldError
	var fenced *hansard.FencedError
	mask := func(t hansard.Turn) hansard.Turn {
		return hansard.Turn{Seq: t.Seq, Since: t.Since, TTL: t.TTL, Exclusive: t.Exclusive}
	}
	switch {
	case callerOf(ctx).Rights.allows(Read) || errors.Is(err, hansard.ErrUnknown):
	case errors.As(err, &held):
		return &hansard.HeldError{Session: held.Session, Turn: mask(held.Turn)}
	case errors.As(err, &fenced) && fenced.Current != nil:
		now := mask(*fenced.Current)
		return &hansard.FencedError{Session: fenced.Session, Grant: fenced.Grant, Current: &now}
	}
	return err
}

// follow returns a context that ends when a session leaves the scope of the caller that
// follows it: labels change. The cancel function must be called.
func (d *door) follow(ctx context.Context, id hansard.SessionID, last hansard.Seq) (context.Context, context.CancelFunc) {
	who := callerOf(ctx).quiet()
	out, cancel := context.WithCancelCause(ctx)
	if len(who.Scope.Labels) > 0 {
		go d.watchScope(out, who, id, last, cancel)
	}
	return out, func() { cancel(nil) }
}

// scopeEvery is the minimum time between two checks that a growing session is still in
// scope.
const scopeEvery = time.Second

func (d *door) watchScope(ctx context.Context, who caller, id hansard.SessionID, last hansard.Seq, end context.CancelCauseFunc) {
	for {
		// If waiting fails it is checked all the same, and waited for again: the session is
		// still followed, unless that fails too.
		_ = d.Store.Wait(ctx, id, last)
		info, err := d.Store.Stat(ctx, id)
		if err == nil {
			last = info.LastSeq
			if !who.Scope.has(&info) {
				end(wire.ProblemOf(who.notThere(id)))
				return
			}
		}
		select {
		case <-time.After(scopeEvery):
		case <-ctx.Done():
			return
		}
	}
}

func (d *door) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	who, err := d.pass(ctx, id, b.Turn)
	created := false
	if errors.Is(err, hansard.ErrNotFound) && b.Create && who.user != nil && who.Scope.named(id) && engine.CheckBatch(&b) == nil {
		// A scope may be labels, so the session is created with them. Create fails if
		// another caller created it first; an append would take over that caller's session.
		if err := who.refusedAnew(id, &b); err != nil {
			return hansard.Receipt{}, err
		}
		_, err = d.Create(ctx, id, b.Meta)
		if created = err == nil; errors.Is(err, hansard.ErrExists) {
			_, err = d.pass(ctx, id, b.Turn)
		}
	}
	if err == nil && b.Patch != nil {
		err = who.keepsLabels(b.Patch)
	}
	if err != nil {
		return hansard.Receipt{}, err
	}
	b.By = who.Name
	receipt, err := d.Store.Append(ctx, id, b)
	receipt.Created = receipt.Created || created && err == nil
	return receipt, err
}

// refusedAnew is the error with which a new session would refuse a batch: it must not be left
// behind, empty, by a batch that is not stored.
func (c caller) refusedAnew(id hansard.SessionID, b *hansard.Batch) error {
	if b.Patch != nil {
		if err := c.keepsLabels(b.Patch); err != nil {
			return err
		}
	}
	events := engine.Normalize(b)
	if names := engine.Names(events); names != nil {
		if _, err := engine.Sift(id, names, engine.PatchHash(b.Patch), nil); err != nil {
			return err
		}
	}
	if err := engine.Fence(id, nil, b.Turn, b.InboxOnly()); err != nil {
		return err
	}
	if b.Expect != nil && *b.Expect > 0 {
		return &hansard.ConflictError{Session: id, Expected: *b.Expect}
	}
	none := func(string) (int64, bool) { return 0, false }
	if err := engine.CheckNamed(id, engine.NamedBy(events), none); err != nil {
		return err
	}
	meta := b.Meta
	var err error
	if meta.Labels, err = c.withLabels(meta.Labels); err != nil {
		return err
	}
	_, err = engine.ApplyPatch(id, meta, b.Patch)
	return err
}

// keepsLabels refuses to change the labels that make up a token's scope.
func (c caller) keepsLabels(p *hansard.Patch) error {
	for name, value := range p.Labels {
		if want, ok := c.Scope.Labels[name]; ok && (value == nil || *value != want) {
			return wire.NewProblem("missing-right", "the label is what makes the session one for this token", "use a token without this scope")
		}
	}
	return nil
}

func (d *door) Create(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
	who := callerOf(ctx)
	if who.user == nil || hansard.CheckID(id) == nil && !who.Scope.named(id) {
		return hansard.Info{}, who.notThere(id)
	}
	labels, err := who.withLabels(m.Labels)
	if err != nil {
		return hansard.Info{}, err
	}
	if len(who.Scope.Labels) > 0 {
		m.Reuse = false // whether the deleted session was in scope is no longer known
	}
	m.Labels = labels
	return d.Store.Create(ctx, id, m)
}

func (d *door) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	if _, err := d.pass(ctx, id, ""); err != nil {
		return hansard.Info{}, err
	}
	return d.Store.Stat(ctx, id)
}

func (d *door) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	if _, err := d.pass(ctx, id, ""); err != nil {
		return err
	}
	return d.Store.Wait(ctx, id, after)
}

func (d *door) Turn(ctx context.Context, id hansard.SessionID) (*hansard.Turn, error) {
	if _, err := d.pass(ctx, id, ""); err != nil {
		return nil, err
	}
	return d.Store.Turn(ctx, id)
}

func (d *door) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	if _, err := d.pass(ctx, id, ""); err != nil {
		return func(yield func(hansard.Event, error) bool) { yield(hansard.Event{}, err) }
	}
	return d.Store.Read(ctx, id, r)
}

// Lend implements [hansard.Lender], whatever the store does.
func (d *door) Lend(ctx context.Context, id hansard.SessionID, r hansard.Range, show func(*hansard.Event) bool) error {
	if _, err := d.pass(ctx, id, ""); err != nil {
		return err
	}
	return hansard.Lend(ctx, d.Store, id, r, show)
}

func (d *door) List(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
	who := callerOf(ctx)
	switch {
	case who.user == nil:
		return func(func(hansard.Info, error) bool) {}
	case who.Scope.All():
		return d.Store.List(ctx, q)
	}
	if err := engine.CheckQuery(&q); err != nil {
		return func(yield func(hansard.Info, error) bool) { yield(hansard.Info{}, err) }
	}
	q, some := who.Scope.narrow(q)
	if !some {
		return func(func(hansard.Info, error) bool) {}
	}
	return d.Store.List(ctx, q)
}

// Count implements [hansard.Counter].
func (d *door) Count(ctx context.Context, q hansard.Query) (int, error) {
	who := callerOf(ctx)
	if who.user == nil {
		return 0, nil
	}
	if err := engine.CheckQuery(&q); err != nil {
		return 0, err
	}
	q, some := who.Scope.narrow(q)
	if !some {
		return 0, nil
	}
	return hansard.Count(ctx, d.Store, q)
}

func (d *door) Attach(ctx context.Context, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) {
	who, err := d.pass(ctx, id, "")
	if err != nil {
		return hansard.Attachment{}, err
	}
	if len(who.Scope.Labels) > 0 {
		r = &stillInScope{r, func() error { return d.inScope(ctx, who, id) }}
	}
	return d.Store.Attach(ctx, id, r)
}

// stillInScope is an attachment on its way into a session whose labels may change until all of
// it has arrived.
type stillInScope struct {
	io.Reader
	check func() error
}

func (r *stillInScope) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		if gone := r.check(); gone != nil {
			err = gone
		}
	}
	return n, err
}

func (d *door) OpenAttachment(ctx context.Context, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
	if _, err := d.pass(ctx, id, ""); err != nil {
		return nil, err
	}
	return d.Store.OpenAttachment(ctx, id, digest)
}

func (d *door) Attachments(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Attachment, error] {
	if _, err := d.pass(ctx, id, ""); err != nil {
		return func(yield func(hansard.Attachment, error) bool) { yield(hansard.Attachment{}, err) }
	}
	return d.Store.Attachments(ctx, id)
}

func (d *door) Delete(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if _, err := d.pass(ctx, id, g); err != nil {
		return err
	}
	return d.Store.Delete(ctx, id, g)
}

func (d *door) Redact(ctx context.Context, id hansard.SessionID, r hansard.Redaction) (hansard.Receipt, error) {
	who, err := d.pass(ctx, id, r.Turn)
	if err != nil {
		return hansard.Receipt{}, err
	}
	r.By = who.Name
	return d.Store.Redact(ctx, id, r)
}

func (d *door) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	who, err := d.pass(ctx, id, "")
	if err != nil {
		return hansard.Turn{}, err
	}
	c.By = who.Name
	t, err := d.Store.Acquire(ctx, id, c)
	if c.Wait != 0 && len(who.Scope.Labels) > 0 {
		// Its labels may have changed while the claim waited.
		switch gone := d.inScope(ctx, who, id); {
		case gone == nil:
		case err == nil:
			d.giveBack(ctx, id, t.Grant)
			return hansard.Turn{}, gone
		case errors.Is(gone, hansard.ErrNotFound) && !errors.Is(err, hansard.ErrUnknown):
			return hansard.Turn{}, gone // and not who holds the turn
		}
	}
	if err == nil {
		d.remember(held{id, t.Grant}, t.By)
	}
	return t, err
}

// giveBack releases a grant that its holder will never use.
func (d *door) giveBack(ctx context.Context, id hansard.SessionID, g hansard.Grant) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = d.Store.Release(ctx, id, g) // if it fails the turn ends with its TTL
}

func (d *door) Renew(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if _, err := d.pass(ctx, id, g); err != nil {
		return err
	}
	return d.Store.Renew(ctx, id, g)
}

func (d *door) Release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if _, err := d.pass(ctx, id, g); err != nil {
		return err
	}
	return d.Store.Release(ctx, id, g)
}
