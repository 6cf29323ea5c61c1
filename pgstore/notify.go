package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
)

const (
	tellEvery     = 5 * time.Millisecond  // the pause after a notification, for each session it named,
	tellWithin    = 50 * time.Millisecond // but not longer than this
	tellAhead     = tellWithin            // of the pauses, this much may be left out after a time without
	notifyBytes   = 7900                  // PostgreSQL takes less than 8000
	notifySeconds = 2
	hearWithin    = 5 * time.Second  // to send our own notification, and then for it to arrive
	hearEvery     = 10 * time.Second // how often that is repeated
)

// listen receives the notifications of other processes, on a connection of its own.
func (h *hub) listen(ctx context.Context) {
	const soon = 50 * time.Millisecond
	for pause := soon; ctx.Err() == nil; {
		if h.listenOnce(ctx) {
			pause = soon
		}
		h.setListening(false)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, hearEvery)
		}
	}
}

// listenOnce listens until the connection ends, for whatever reason: the next one is made a
// moment later, and meanwhile changes are found by looking. It returns whether the
// connection delivered notifications.
func (h *hub) listenOnce(ctx context.Context) (heard bool) {
	cfg := h.s.pool.Config().ConnConfig
	cfg.DialFunc = h.s.dialer.DialContext // not watched: it waits in silence
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return false
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.Close(ctx)
	}()
	bounded, cancel := context.WithTimeout(ctx, hearWithin)
	defer cancel()
	if _, err := conn.Exec(bounded, "LISTEN "+h.s.channel); err != nil {
		return false
	}
	for h.hear(ctx, conn) {
		heard = true
	}
	return heard
}

// hear receives notifications for a while, and checks that one it sends itself, over
// another connection, arrives: this connection may be dead, and LISTEN has no effect where
// a pooler gives each statement to another process of the server.
func (h *hub) hear(ctx context.Context, conn *pgx.Conn) (heard bool) {
	word := "?" + newMark() // no session has such an id
	var said atomic.Bool
	saying := make(chan struct{})
	go func() {
		defer close(saying)
		said.Store(h.tellOne(ctx, word) == nil)
	}()
	defer func() { <-saying }()
	until := time.Now().Add(2 * hearWithin)
	for {
		bounded, cancel := context.WithDeadline(ctx, until)
		n, err := conn.WaitForNotification(bounded)
		cancel()
		switch {
		case err != nil:
			// If our own notification could not be sent, it proves nothing that it did not
			// arrive.
			return (heard || !said.Load()) && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded)
		case n.Payload == word:
			heard, until = true, time.Now().Add(hearEvery)
			h.setListening(true)
		default:
			h.heard(strings.Fields(n.Payload))
		}
	}
}

func (h *hub) heard(ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if h.watches[hansard.SessionID(id)] != nil {
			h.markDirtyLocked(hansard.SessionID(id))
		}
	}
}

// setListening records whether notifications arrive. Those sent before they did are lost,
// so everything is looked at.
func (h *hub) setListening(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listening && on {
		return
	}
	h.listening = on
	for id := range h.watches {
		h.markDirtyLocked(id)
	}
}

// telling notifies other processes of what changed, apart from the commits: NOTIFY in the
// transactions themselves would make them wait for each other. What changes while a
// notification is under way, or during the pause after it, is named in the next one.
func (h *hub) telling(ctx context.Context) {
	var p pace
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.tell:
		case <-h.mention:
			if !h.linger(ctx) {
				return
			}
		}
		for _, announced := range []chan struct{}{h.hurry, h.mention} { // now, too
			select {
			case <-announced:
			default:
			}
		}
		began := time.Now()
		told := h.flush()
		if most := p.rest(began, time.Now(), told); !h.rest(ctx, min(tellEvery, most), most) {
			return
		}
	}
}

// linger waits with a change that nobody waits for, until there is one that somebody may be
// waiting for: then one notification names both. It returns whether to go on.
func (h *hub) linger(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-h.tell:
	case <-time.After(tellEvery):
	}
	return true
}

// pace bounds how many notifications there are in the long run, but not how soon one may
// follow another: the pauses after a few of them may be left out if there were none for a
// while. A turn that is granted and released again, or an event and the next, are
// announced at once.
type pace struct {
	until time.Time // when the pauses after all notifications would be over
}

// rest is how long to pause after a notification of so many sessions.
func (p *pace) rest(began, ended time.Time, told int) time.Duration {
	if p.until.Before(began) {
		p.until = began
	}
	p.until = p.until.Add(ended.Sub(began) + restAfter(told))
	return max(0, p.until.Sub(ended)-tellAhead)
}

// restAfter is how long to pause after a notification that named so many sessions. A
// notification is a commit of its own, and costs the database about as much as one with
// events, however many sessions it names: eight processes that were busy with a hundred
// sessions sent as many notifications as they made commits. If only one session is busy,
// the pause is no longer than tellEvery.
func restAfter(told int) time.Duration {
	return min(max(time.Duration(told)*tellEvery, tellEvery), tellWithin)
}

// rest pauses for most, or only for least if something is in a hurry. It returns whether to
// go on.
func (h *hub) rest(ctx context.Context, least, most time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(least):
	}
	select {
	case <-ctx.Done():
		return false
	case <-h.hurry:
	case <-time.After(most - least):
	}
	return true
}

// tellOthers commits without waiting for the disk or a standby: what it announces is
// durable already, and losing it does no harm. PostgreSQL lets one transaction at a time
// commit that notifies; if that waited for a flush, the other processes' notifications
// would queue up behind it.
const tellOthers = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"

// flush names the sessions that changed to other processes, and returns how many it named.
// If it fails, they find out by looking.
func (h *hub) flush() (told int) {
	ctx, cancel := context.WithTimeout(context.Background(), notifySeconds*time.Second)
	defer cancel()
	return h.flushBy(func(text string) error {
		_, err := h.s.pool.Exec(ctx, tellOthers, h.s.channel, text)
		return err
	})
}

// flushBy is flush with any way to notify. It names as many sessions as had changed when it
// began: those that change meanwhile are named after the pause, or there would be none as
// long as something changes in the time that a notification takes.
func (h *hub) flushBy(notify func(text string) error) (told int) {
	h.mu.Lock()
	most := len(h.news)
	h.mu.Unlock()
	for told < most {
		text, sessions := h.nextNews()
		told += sessions
		if sessions == 0 || notify(text) != nil {
			break
		}
	}
	return told
}

// tellOne sends one notification of our own.
func (h *hub) tellOne(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, hearWithin)
	defer cancel()
	_, err := h.s.pool.Exec(ctx, tellOthers, h.s.channel, text)
	return err
}

func (h *hub) nextNews() (ids string, sessions int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var text strings.Builder
	for id := range h.news {
		if text.Len()+len(id) >= notifyBytes {
			break
		}
		fmt.Fprintf(&text, "%s ", id)
		delete(h.news, id)
		sessions++
	}
	return text.String(), sessions
}
