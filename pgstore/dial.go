package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
)

// How long to wait without a sign of life from the other side. A call may meet several of
// these one after the other: a connection that falls silent, a host that does not answer,
// a row that a silent process has locked. The sum stays below the 15 seconds that
// docs/postgres.md promises.
const (
	connectPatience = 3 * time.Second // for one host to take a connection, unless the URL says connect_timeout
	silentAfter     = 4 * time.Second // until a connection that waits for an answer is looked into: silence.go
	askPatience     = 4 * time.Second // for the server to say what it knows of it
	idleInside      = 3 * time.Second // for a process to go on with its transaction: several that fell silent may be waiting for one row
	stuckAfter      = 5 * time.Second // for the rest of a message, from a process that has locked a row

	keepaliveIdle     = 5 * time.Second
	keepaliveInterval = 2 * time.Second
	keepaliveCount    = 3
	userTimeout       = 10 * time.Second // for sent data to be acknowledged

	// A host that did not answer is not tried again for avoidSilent, if the URL names other
	// hosts, and for avoidOnly if it does not.
	avoidSilent, avoidOnly = 10 * time.Second, time.Second
)

// dialer makes the connections of a store, and knows those that are open.
type dialer struct {
	net.Dialer
	patience time.Duration // for a host to take a connection
	avoid    time.Duration // how long a host that did not answer is not tried again

	mu     sync.Mutex // guards below
	lines  map[*line]bool
	silent map[string]time.Time // hosts that did not answer, and until when they are avoided
}

// newDialer makes a dialer with the TCP settings of a configuration. They have libpq's
// names, and are removed from the configuration: the server does not know them.
func newDialer(cfg *pgx.ConnConfig) (*dialer, error) {
	d := &dialer{patience: cfg.ConnectTimeout, avoid: avoidOnly, lines: make(map[*line]bool), silent: make(map[string]time.Time)}
	for _, other := range cfg.Fallbacks {
		if other.Host != cfg.Host || other.Port != cfg.Port {
			d.avoid = avoidSilent
		}
	}
	on, idle, interval, count, timeout := 1, int(keepaliveIdle/time.Second), int(keepaliveInterval/time.Second), keepaliveCount, int(userTimeout/time.Millisecond)
	for name, value := range map[string]*int{"keepalives": &on, "keepalives_idle": &idle, "keepalives_interval": &interval,
		"keepalives_count": &count, "tcp_user_timeout": &timeout} {
		text, given := cfg.RuntimeParams[name]
		if !given {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, &hansard.InvalidError{Field: "store", Reason: fmt.Sprintf("%s=%s is not a number", name, text)}
		}
		*value = int(n)
		if name != "tcp_user_timeout" { // the server has a setting of this name for its side
			delete(cfg.RuntimeParams, name)
		}
	}
	d.KeepAliveConfig = net.KeepAliveConfig{Enable: on > 0, Idle: systemOr(idle) * time.Second, Interval: systemOr(interval) * time.Second, Count: int(systemOr(count))}
	if on == 0 {
		d.KeepAlive = -1
	}
	d.Control = tcpUserTimeout(time.Duration(timeout) * time.Millisecond)
	return d, nil
}

// systemOr maps 0, which leaves a setting to the system in libpq, to -1, which does so in Go.
func systemOr(n int) time.Duration {
	if n == 0 {
		return -1
	}
	return time.Duration(n)
}

// errAvoided is the answer for a host that was silent a moment ago.
var errAvoided = errors.New("it did not answer a moment ago")

// dial connects to a host, for the pool.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if d.avoided(address) {
		return nil, errAvoided
	}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			d.leaveAlone(address)
		}
		return nil, err
	}
	l := &line{Conn: c, d: d, network: network, address: address, began: time.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines[l] = true
	return l, nil
}

func (d *dialer) avoided(address string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Before(d.silent[address])
}

// leaveAlone records that a host does not answer.
func (d *dialer) leaveAlone(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent[address] = time.Now().Add(d.avoid)
}

// waiting returns the lines that have waited for silentAfter or longer, by remote address.
func (d *dialer) waiting() map[string][]*line {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found map[string][]*line
	for l := range d.lines {
		if l.quiet() >= silentAfter {
			if found == nil {
				found = make(map[string][]*line)
			}
			found[l.address] = append(found[l.address], l)
		}
	}
	return found
}

// hangUp closes the lines that still wait for something, until the pool is closed: while
// closing, the pool sends a silent host a cancel request and a goodbye, and would wait for
// both.
func (d *dialer) hangUp(closed <-chan struct{}) {
	for {
		select {
		case <-closed:
			return
		case <-time.After(100 * time.Millisecond):
		}
		d.mu.Lock()
		lines := slices.Collect(maps.Keys(d.lines))
		d.mu.Unlock()
		for _, l := range lines {
			if l.ops.Load() > 0 {
				l.Close()
			}
		}
	}
}

// line is a connection that knows how long it has waited for the other side. A timeout for
// the whole statement would not do: a slow statement, or the megabytes of a batch on a slow
// network, are not silence.
type line struct {
	net.Conn
	d                *dialer
	network, address string
	began            time.Time

	pid     atomic.Uint32 // of the server's process; 0: not known
	ops     atomic.Int32  // reads and writes under way
	since   atomic.Int64  // when the first of them began, or anything last moved: nanoseconds after began
	checked atomic.Int64  // when the server was last found to be working for it, likewise
	heard   atomic.Bool   // the other side has sent something
	owed    atomic.Bool   // we have sent something and got no answer yet
}

func (l *line) now() int64 { return int64(time.Since(l.began)) }

// quiet is how long nothing has moved although a read or write is under way.
func (l *line) quiet() time.Duration {
	if l.ops.Load() == 0 {
		return 0
	}
	return time.Duration(l.now() - max(l.since.Load(), l.checked.Load()))
}

func (l *line) enter() {
	if l.ops.Add(1) == 1 {
		l.since.Store(l.now())
	}
}

func (l *line) leave() {
	l.since.Store(l.now())
	l.ops.Add(-1)
}

// Read implements [net.Conn].
func (l *line) Read(b []byte) (int, error) {
	l.enter()
	defer l.leave()
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.heard.Store(true)
		l.owed.Store(false)
	}
	return n, err
}

// writePiece is how much is written at once: each piece counts as progress.
const writePiece = 64 << 10

// Write implements [net.Conn].
func (l *line) Write(b []byte) (written int, err error) {
	for {
		piece := b[written:min(len(b), written+writePiece)]
		n, err := l.writeOnce(piece)
		if written += n; err != nil || written == len(b) {
			return written, err
		}
	}
}

func (l *line) writeOnce(b []byte) (int, error) {
	l.enter()
	defer l.leave()
	l.owed.Store(true)
	return l.Conn.Write(b)
}

// Close implements [net.Conn]. A host that accepted the connection and never sent a byte
// counts as one that does not answer.
func (l *line) Close() error {
	if !l.heard.Load() && time.Since(l.began) >= l.d.patience {
		l.d.leaveAlone(l.address)
	}
	l.d.mu.Lock()
	delete(l.d.lines, l)
	l.d.mu.Unlock()
	return l.Conn.Close()
}

// lineOf is the line under a connection.
func lineOf(c *pgx.Conn) *line {
	under := c.PgConn().Conn()
	if encrypted, ok := under.(interface{ NetConn() net.Conn }); ok {
		under = encrypted.NetConn()
	}
	l, _ := under.(*line)
	return l
}
