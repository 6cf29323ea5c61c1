package durable

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"hansard"
	"hansard/internal/wire"
)

// addition is what a request wants to add to a stream.
type addition struct {
	body   []byte
	media  string
	closes bool
	// seq is the Stream-Seq; nil if not given.
	seq *string
	// by is the producer; empty if not given.
	by       string
	epoch, n int64 // of the producer

	key   string
	turn  hansard.Grant
	inbox bool
}

// outcome is the result of an addition.
type outcome struct {
	duplicate bool
	last      int64 // the producer's last seq
	// The stream after it.
	c    *config
	info *hansard.Info
}

// Append adds to a stream, and closes it if the request says so, in one commit.
func (s *Streams) Append(w http.ResponseWriter, r *http.Request, id hansard.SessionID, body []byte) error {
	a, err := parseAddition(r.Header, body)
	if err != nil {
		return err
	}
	ctx := context.WithoutCancel(r.Context())
	for range maxTries {
		c, info, err := s.open(ctx, id)
		if err != nil {
			return err
		}
		done, err := s.try(ctx, w.Header(), c, info, a)
		if errors.Is(err, hansard.ErrConflict) {
			continue // another writer was first
		}
		if err != nil {
			c.ends(w.Header(), info)
			return told(err)
		}
		a.answer(w, done)
		return nil
	}
	return tooBusy()
}

// answer answers a request that did not fail.
func (a *addition) answer(w http.ResponseWriter, done *outcome) {
	h := w.Header()
	done.c.ends(h, done.info)
	status := http.StatusNoContent
	if a.by != "" {
		h.Set(headerEpoch, strconv.FormatInt(a.epoch, 10))
		h.Set(headerProducerSeq, strconv.FormatInt(done.last, 10))
		if !done.duplicate && len(a.body) > 0 {
			status = http.StatusOK
		}
	}
	w.WriteHeader(status)
}

// try adds to the stream as it was found. ErrConflict means that it has changed since.
func (s *Streams) try(ctx context.Context, h http.Header, c *config, info *hansard.Info, a *addition) (*outcome, error) {
	before := &outcome{duplicate: true, last: a.n, c: c, info: info}
	if c.Closed != nil {
		return before, a.toClosed(c)
	}
	if len(a.body) > 0 && !sameType(a.media, c.Type) {
		return nil, refused("the stream is of the type %s", c.Type)
	}
	if a.by != "" {
		if known, err := a.checkProducer(h, c); known || err != nil {
			before.last = c.Producers[a.by].Seq
			return before, err
		}
	}
	if a.seq != nil && c.hasOwnSeq && *a.seq <= c.Seq {
		return nil, refused("the %s is not larger than the last one", headerSeq)
	}
	b, err := a.batch(c, info)
	if err != nil {
		return nil, err
	}
	receipt, err := s.store.Append(ctx, info.ID, b)
	if errors.Is(err, hansard.ErrKeyReused) && a.by != "" {
		return before, nil // a retry of a producer that the stream has forgotten
	}
	if err != nil {
		return nil, err
	}
	after := &outcome{duplicate: receipt.Replayed, last: a.n}
	if after.c, after.info, err = s.find(ctx, info.ID); err != nil {
		// It is stored. Whether that was before the stream was closed is not known.
		return nil, fmt.Errorf("%w: %w", hansard.ErrUnknown, err)
	}
	if !a.closes && after.c.Closed != nil && after.c.Closed.Tail < receipt.First {
		// Too late: it is in the session, but not in the stream. The next try finds it closed.
		return nil, hansard.ErrConflict
	}
	return after, nil
}

// toClosed decides about an addition to a closed stream: an error, or nil if this very
// request closed it.
func (a *addition) toClosed(c *config) error {
	by := c.Closed
	same := a.by != "" && a.by == by.Producer && a.epoch == by.Epoch && a.n == by.Seq
	if same || a.by == "" && a.closes && len(a.body) == 0 {
		return nil
	}
	return wire.NewProblem("stream-closed", "the stream is closed", "create another one")
}

// checkProducer compares a producer's numbers with the recorded ones, and reports whether
// the request was executed before.
func (a *addition) checkProducer(h http.Header, c *config) (duplicate bool, err error) {
	known, ok := c.Producers[a.by]
	gap := func(want int64) error {
		h.Set(headerExpectedSeq, strconv.FormatInt(want, 10))
		h.Set(headerReceivedSeq, strconv.FormatInt(a.n, 10))
		return refused("the %s is %d, and %d is due", headerProducerSeq, a.n, want)
	}
	switch {
	case !ok && a.n != 0:
		return false, gap(0)
	case !ok:
	case a.epoch < known.Epoch:
		h.Set(headerEpoch, strconv.FormatInt(known.Epoch, 10))
		return false, wire.NewProblem("stale-epoch", fmt.Sprintf("the producer is in its epoch %d", known.Epoch), "stop: another one writes in its name")
	case a.epoch > known.Epoch && a.n != 0:
		return false, malformed("a new epoch begins with the %s 0", headerProducerSeq)
	case a.epoch > known.Epoch:
	case a.n <= known.Seq:
		return true, nil
	case a.n > known.Seq+1:
		return false, gap(known.Seq + 1)
	}
	return false, nil
}

// batch is what is appended to the session, on the condition that it is as it was found.
func (a *addition) batch(c *config, info *hansard.Info) (hansard.Batch, error) {
	events, err := c.events(a.body, false)
	if err != nil {
		return hansard.Batch{}, err
	}
	for i := range events {
		events[i].Inbox = a.inbox
	}
	b := hansard.Batch{Events: events, Turn: a.turn, Key: a.key}
	if a.by == "" && a.seq == nil && !a.closes {
		return b, nil
	}
	ch, err := c.change()
	if err != nil {
		return hansard.Batch{}, err
	}
	if a.by != "" {
		c.produced(ch, a.by, producer{a.epoch, a.n, info.LastSeq})
		if a.n == 0 {
			// The stream may forget the producer. Then a retry of the first request of an
			// epoch would be taken for a new one: the key prevents that.
			b.Key = producerKey(a.by, a.epoch)
		}
	}
	if a.seq != nil {
		c.sequenced(ch, *a.seq)
	}
	if a.closes {
		tail := info.LastSeq + hansard.Seq(len(events))
		ch.add(pathClosed, closing{tail, a.by, a.epoch, a.n})
	}
	if b.Patch = ch.patch(); ch.exact {
		b.Expect = hansard.At(info.LastSeq)
	}
	return b, nil
}

// keyPrefix begins the keys that the server makes.
const keyPrefix = "durable-producer:"

func producerKey(id string, epoch int64) string {
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%s%s:%d", keyPrefix, hex.EncodeToString(sum[:16]), epoch)
}

func parseAddition(h http.Header, body []byte) (*addition, error) {
	a := &addition{body: body, media: strings.TrimSpace(h.Get(headerType)), closes: closes(h), turn: hansard.Grant(h.Get(headerTurn))}
	if len(body) == 0 && !a.closes {
		return nil, malformed("there is no body")
	}
	if len(body) > 0 {
		if a.media == "" {
			return nil, malformed("there is no Content-Type")
		}
		if err := checkType(a.media); err != nil {
			return nil, err
		}
	}
	if values, ok := h[http.CanonicalHeaderKey(headerSeq)]; ok {
		if len(values) != 1 || len(values[0]) > maxNameBytes || !utf8.ValidString(values[0]) {
			return nil, malformed("the %s is not one text of up to %d bytes", headerSeq, maxNameBytes)
		}
		a.seq = &values[0]
	}
	switch v := h.Get(headerInbox); v {
	case "", "false":
	case headerTrue:
		a.inbox = true
	default:
		return nil, malformed("the %s is neither true nor false", headerInbox)
	}
	if err := a.parseProducer(h); err != nil {
		return nil, err
	}
	if keys := h.Values(wire.KeyHeader); len(keys) > 0 {
		if a.by != "" {
			return nil, malformed("a producer's request has no %s: its numbers are one", wire.KeyHeader)
		}
		key, err := wire.ParseKey(keys)
		if err != nil {
			return nil, told(err)
		}
		if strings.HasPrefix(key, keyPrefix) {
			return nil, malformed("keys that begin with %q are the server's own", keyPrefix)
		}
		a.key = key
	}
	return a, nil
}

func (a *addition) parseProducer(h http.Header) error {
	var given [3]string
	has := 0
	for i, name := range [...]string{headerProducer, headerEpoch, headerProducerSeq} {
		values := h[http.CanonicalHeaderKey(name)]
		if len(values) > 1 {
			return malformed("there are several %s", name)
		}
		if len(values) == 1 {
			given[i] = values[0]
			has++
		}
	}
	if has == 0 {
		return nil
	}
	if has < len(given) {
		return malformed("%s, %s and %s are given together", headerProducer, headerEpoch, headerProducerSeq)
	}
	a.by = given[0]
	if a.by == "" || len(a.by) > maxNameBytes || !utf8.ValidString(a.by) {
		return malformed("the %s is not a text of 1 to %d bytes", headerProducer, maxNameBytes)
	}
	for i, into := range []*int64{&a.epoch, &a.n} {
		n, err := strconv.ParseInt(given[i+1], 10, 64)
		if err != nil || n < 0 || n > longestSafe || strings.HasPrefix(given[i+1], "+") {
			return malformed("%.40q is not a number from 0 to %d", given[i+1], longestSafe)
		}
		*into = n
	}
	return nil
}
