package httpd

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"hansard"
	"hansard/engine"
)

// Scope is the set of sessions that a token is for: those that meet every condition that is
// set. The zero value is all sessions. A session out of scope looks as if it did not exist.
type Scope struct {
	// Session is the only session.
	Session hansard.SessionID `json:"session,omitempty"`
	// Prefix is how the ids begin.
	Prefix string `json:"prefix,omitempty"`
	// Labels are labels that the sessions have. Sessions that the token creates get them.
	Labels map[string]string `json:"labels,omitempty"`
}

// All reports whether the scope is all sessions.
func (s Scope) All() bool { return s.Session == "" && s.Prefix == "" && len(s.Labels) == 0 }

// named reports whether a session of this id may be in scope.
func (s Scope) named(id hansard.SessionID) bool {
	return (s.Session == "" || s.Session == id) && strings.HasPrefix(string(id), s.Prefix)
}

// has reports whether a session is in scope.
func (s Scope) has(info *hansard.Info) bool {
	for name, value := range s.Labels {
		if got, ok := info.Labels[name]; !ok || got != value {
			return false
		}
	}
	return s.named(info.ID)
}

// narrow limits a query to the sessions in scope. It returns false if there can be none.
func (s Scope) narrow(q hansard.Query) (hansard.Query, bool) {
	if s.Session != "" {
		if len(q.IDs) > 0 && !slices.Contains(q.IDs, s.Session) {
			return q, false
		}
		q.IDs = []hansard.SessionID{s.Session}
	}
	switch {
	case strings.HasPrefix(s.Prefix, q.Prefix):
		q.Prefix = s.Prefix
	case !strings.HasPrefix(q.Prefix, s.Prefix):
		return q, false
	}
	if len(s.Labels) == 0 {
		return q, true
	}
	labels := maps.Clone(s.Labels)
	for name, value := range q.Labels {
		if own, ok := labels[name]; ok && own != value {
			return q, false
		}
		labels[name] = value
	}
	q.Labels = labels
	return q, true
}

// within narrows a scope to one session; false if that can't be in scope.
func (s Scope) within(session hansard.SessionID) (Scope, bool) {
	if session == "" {
		return s, true
	}
	if !s.named(session) {
		return Scope{}, false
	}
	s.Session = session
	return s, true
}

func (s Scope) String() string {
	var parts []string
	if s.Session != "" {
		parts = append(parts, "session "+string(s.Session))
	}
	if s.Prefix != "" {
		parts = append(parts, "prefix "+s.Prefix)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		parts = append(parts, "label "+name+"="+s.Labels[name])
	}
	return strings.Join(parts, ", ")
}

// check returns an error if a scope can't contain any session.
func (s Scope) check() error {
	if s.Session != "" {
		if err := hansard.CheckID(s.Session); err != nil {
			return err
		}
	}
	if s.Prefix != "" {
		if err := hansard.CheckID(hansard.SessionID(s.Prefix)); err != nil {
			return fmt.Errorf("prefix: %w", err)
		}
	}
	return engine.CheckMeta(&hansard.Meta{Labels: s.Labels})
}

// ParseRate reads how many requests a token may make: "50/s", "3000/m".
func ParseRate(text string) (perSecond float64, err error) {
	number, unit, ok := strings.Cut(text, "/")
	n, convErr := strconv.ParseFloat(number, 64)
	each := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	if !ok || convErr != nil || each == 0 || !(n > 0) || n > 1e6 {
		return 0, fmt.Errorf("%q is not a rate: write 50/s, 3000/m or 100/h", text)
	}
	return n / each, nil
}

// bucket is how many requests a token may make now: it holds at most what the token may
// make in a second, but at least one.
type bucket struct {
	left float64
	when time.Time
}

// take takes one request, or returns how many seconds to wait for one.
func (b *bucket) take(now time.Time, rate float64) (wait float64) {
	most := max(1, rate)
	if b.when.IsZero() {
		b.left = most
	} else {
		b.left = min(most, b.left+rate*now.Sub(b.when).Seconds())
	}
	b.when = now
	if b.left < 1 {
		return (1 - b.left) / rate
	}
	b.left--
	return 0
}

// full reports whether the bucket is full, so that it need not be remembered.
func (b *bucket) full(now time.Time, rate float64) bool {
	return b.when.IsZero() || b.left+rate*now.Sub(b.when).Seconds() >= max(1, rate)
}
