package durable

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"hansard"
)

// config is everything about a stream except its content: the member "durable" of the
// session's state. A session without it is a stream of application/json that does not expire.
type config struct {
	Type string `json:"type,omitempty"`
	// TTL is how many seconds after its last use the stream expires.
	TTL     *int64     `json:"ttl,omitempty"`
	Expires *time.Time `json:"expires_at,omitempty"`
	// Start is the last event before the stream: that of an earlier stream, which expired.
	Start  hansard.Seq `json:"start,omitempty"`
	Closed *closing    `json:"closed,omitempty"`
	// Forked is the stream that it is a fork of.
	Forked *origin `json:"forked,omitempty"`
	// Unfinished: it was created, but its first content or settings are still missing.
	Unfinished bool `json:"unfinished,omitempty"`
	// Seq is the last Stream-Seq.
	Seq       string              `json:"seq,omitempty"`
	Producers map[string]producer `json:"producers,omitempty"`

	// What the state contains, for changes to it.
	parent                              *hansard.Parent
	stateKind                           stateKind
	hasDurable, hasProducers, hasOwnSeq bool
}

// closing records that a stream is closed: where its end is, and who closed it.
type closing struct {
	Tail     hansard.Seq `json:"tail"`
	Producer string      `json:"producer,omitempty"`
	Epoch    int64       `json:"epoch,omitempty"`
	Seq      int64       `json:"seq,omitempty"`
}

// producer is a producer's progress.
type producer struct {
	Epoch int64 `json:"epoch"`
	Seq   int64 `json:"seq"`
	// At is roughly where it wrote last: the producers that have not written for the
	// longest time are forgotten first.
	At hansard.Seq `json:"at"`
}

type stateKind int

const (
	stateNull stateKind = iota
	stateObject
	stateOther // not an object: it has no place for a config
)

// The paths in the state.
const (
	pathDurable   = "/durable"
	pathClosed    = pathDurable + "/closed"
	pathSeq       = pathDurable + "/seq"
	pathProducers = pathDurable + "/producers"
)

// parseConfig finds the stream in a session's state.
func parseConfig(state json.RawMessage) (*config, error) {
	c := &config{}
	switch text := bytes.TrimSpace(state); {
	case len(text) == 0 || string(text) == "null":
		c.stateKind = stateNull
	case text[0] == '{':
		c.stateKind = stateObject
		var in struct {
			Durable json.RawMessage `json:"durable"`
		}
		if err := json.Unmarshal(text, &in); err != nil {
			return nil, err
		}
		if c.hasDurable = in.Durable != nil; c.hasDurable {
			var has map[string]json.RawMessage
			if json.Unmarshal(in.Durable, &has) != nil || has == nil || json.Unmarshal(in.Durable, c) != nil {
				return nil, refused("what the session has in its state at %q is not of a stream", "durable")
			}
			c.hasProducers, c.hasOwnSeq = c.Producers != nil, has["seq"] != nil
		}
	default:
		c.stateKind = stateOther
	}
	if c.Type == "" {
		c.Type = mediaJSON
	}
	return c, nil
}

// json reports whether the stream has messages, not bytes.
func (c *config) json() bool { return sameType(c.Type, mediaJSON) }

// text reports whether its bytes are sent as text in an event stream.
func (c *config) text() bool { return strings.HasPrefix(bareType(c.Type), "text/") }

// tail is the end of the stream in a session. A fork ends where it was forked until it has
// content of its own: the event that records the fork is not part of the stream.
func (c *config) tail(info *hansard.Info) hansard.Seq {
	switch {
	case c.Closed != nil:
		return c.Closed.Tail
	case c.parent != nil && info.LastSeq == c.parent.At+1:
		return max(c.parent.At, c.Start)
	}
	return max(info.LastSeq, c.Start)
}

// describe sets the headers that describe a stream.
func (c *config) describe(h http.Header) {
	h.Set(headerType, c.Type)
	if c.TTL != nil {
		h.Set(headerTTL, strconv.FormatInt(*c.TTL, 10))
	}
	if c.Expires != nil {
		h.Set(headerExpires, c.Expires.Format(time.RFC3339Nano))
	}
}

// ends sets the headers that say where a stream ends, and whether it is closed.
func (c *config) ends(h http.Header, info *hansard.Info) {
	h.Set(headerNext, formatOffset(c.tail(info)))
	if c.Closed != nil {
		h.Set(headerClosed, headerTrue)
	}
}

// same reports whether an existing stream is like the requested one.
func (c *config) same(asked *config) bool {
	sameTTL := c.TTL == nil && asked.TTL == nil || c.TTL != nil && asked.TTL != nil && *c.TTL == *asked.TTL
	sameEnd := c.Expires == nil && asked.Expires == nil || c.Expires != nil && asked.Expires != nil && c.Expires.Equal(*asked.Expires)
	sameOrigin := c.Forked == nil && asked.Forked == nil || c.Forked != nil && asked.Forked != nil && *c.Forked == *asked.Forked
	return sameType(c.Type, asked.Type) && sameTTL && sameEnd && sameOrigin && (c.Closed != nil) == (asked.Closed != nil)
}

// bareType is a media type without its parameters.
func bareType(media string) string {
	bare, _, _ := strings.Cut(media, ";")
	return strings.ToLower(strings.TrimSpace(bare))
}

func sameType(a, b string) bool { return bareType(a) == bareType(b) }

func checkType(media string) error {
	if _, _, err := mime.ParseMediaType(media); err != nil || len(media) > maxNameBytes || !strings.Contains(bareType(media), "/") {
		return malformed("the Content-Type %.80q is not a media type", media)
	}
	return nil
}

// A number as in the protocol: no sign, no leading zeros.
var plainNumber = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

// askedConfig reads the config that a request to create a stream asks for.
func askedConfig(h http.Header) (*config, error) {
	c := &config{Type: strings.TrimSpace(h.Get(headerType))}
	if c.Type == "" {
		c.Type = mediaBytes
	}
	if err := checkType(c.Type); err != nil {
		return nil, err
	}
	if _, ok := h[http.CanonicalHeaderKey(headerTTL)]; ok {
		text := h.Get(headerTTL)
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || !plainNumber.MatchString(text) || n > longestSafe {
			return nil, malformed("the %s %.40q is not a number of seconds", headerTTL, text)
		}
		c.TTL = &n
	}
	if _, ok := h[http.CanonicalHeaderKey(headerExpires)]; ok {
		at, err := time.Parse(time.RFC3339, h.Get(headerExpires))
		if err != nil {
			return nil, malformed("the %s %.40q is not a time (RFC 3339)", headerExpires, h.Get(headerExpires))
		}
		at = at.UTC()
		if at.Year() < 0 || at.Year() > 9999 {
			return nil, malformed("the %s %.40q is in a year that can't be written in UTC", headerExpires, h.Get(headerExpires))
		}
		c.Expires = &at
	}
	if c.TTL != nil && c.Expires != nil {
		return nil, malformed("a stream has a %s or a %s, not both", headerTTL, headerExpires)
	}
	if closes(h) {
		c.Closed = &closing{}
	}
	return c, nil
}

// closes reports whether a request closes the stream. Any value other than true does not.
func closes(h http.Header) bool { return strings.EqualFold(h.Get(headerClosed), headerTrue) }

// expired reports whether a stream has expired. Then it is hidden, not deleted: anyone who
// may append can make a stream expire, but only an admin may delete.
func (s *Streams) expired(c *config, info *hansard.Info) bool {
	now := s.now()
	if c.Expires != nil && !now.Before(*c.Expires) {
		return true
	}
	if c.TTL == nil {
		return false
	}
	used := info.Updated
	if read := s.reads.of(info.ID); read.After(used) {
		used = read
	}
	return now.Sub(used).Seconds() >= float64(*c.TTL)
}

// lastReads remembers when streams with a TTL were read. It is in the memory of this server
// only; what is durable is when they were written to.
type lastReads struct {
	mu sync.Mutex
	at map[hansard.SessionID]time.Time
}

func (l *lastReads) of(id hansard.SessionID) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at[id]
}

func (l *lastReads) note(id hansard.SessionID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other := range l.at { // any of them
		if len(l.at) < maxReads {
			break
		}
		delete(l.at, other)
	}
	l.at[id] = now
}
