package pgtest

import (
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Proxy sits between clients and a server, on a TCP port, and does to their connections
// what networks do: it cuts them, delays them, and falls silent while the kernels at both
// ends believe them to be alive.
type Proxy struct {
	server string // the directory of the server's socket
	listen net.Listener

	mu     sync.Mutex // guards below
	conns  map[*proxied]bool
	silent bool
	delay  time.Duration
	refuse []string // SQLSTATEs to answer the next connections with
	healed chan struct{}
}

// Proxy makes a proxy to this server, and returns a URL of the server through the proxy.
func (s *Server) Proxy(t testing.TB, address string) (*Proxy, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{server: s.dir, listen: l, conns: make(map[*proxied]bool), healed: make(chan struct{})}
	var serving sync.WaitGroup
	serving.Go(func() { p.serve(&serving) })
	t.Cleanup(func() {
		l.Close()
		p.Cut()
		p.Heal()
		serving.Wait()
	})
	q := u.Query()
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	q.Set("host", host)
	q.Set("port", port)
	q.Set("sslmode", "disable")
	return p, "postgres://?" + q.Encode()
}

// Proxied is a URL of several proxies: clients choose the one that leads to a server that
// accepts writes. The rest of it is that of the first URL.
func Proxied(first string, others ...string) string {
	u, err := url.Parse(first)
	if err != nil {
		panic(err) // it was made here
	}
	q := u.Query()
	for _, other := range others {
		o, err := url.Parse(other)
		if err != nil {
			panic(err)
		}
		q.Set("host", q.Get("host")+","+o.Query().Get("host"))
		q.Set("port", q.Get("port")+","+o.Query().Get("port"))
	}
	q.Set("target_session_attrs", "read-write")
	return "postgres://?" + q.Encode()
}

func (p *Proxy) serve(serving *sync.WaitGroup) {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		serving.Go(func() { p.pass(client) })
	}
}

// proxied is one connection through a proxy.
type proxied struct {
	client, server net.Conn
	frozen         chan struct{} // closed when nothing passes any more, without either end noticing
	freeze         func()
	ended          chan struct{} // closed when both ends are closed
	end            func()
}

func (p *Proxy) pass(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	code := ""
	if len(p.refuse) > 0 {
		code, p.refuse = p.refuse[0], p.refuse[1:]
	}
	p.mu.Unlock()
	if code != "" {
		refuse(client, code)
		return
	}
	server, err := net.Dial("unix", filepath.Join(p.server, socketName))
	if err != nil {
		return // the client notices
	}
	c := &proxied{client: client, server: server, frozen: make(chan struct{}), ended: make(chan struct{})}
	c.freeze = sync.OnceFunc(func() { close(c.frozen) })
	c.end = sync.OnceFunc(func() {
		close(c.ended)
		client.Close()
		server.Close()
	})
	p.mu.Lock()
	p.conns[c] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pump(c, server, client) })
	both.Go(func() { p.pump(c, client, server) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// pump passes bytes on in one direction. When one end is closed it closes the other one,
// unless the connection is frozen.
func (p *Proxy) pump(c *proxied, to, from net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if !p.mayPass(c) {
			<-c.ended
			return
		}
		if n > 0 {
			if _, wrong := to.Write(buf[:n]); wrong != nil {
				err = wrong
			}
		}
		if err != nil {
			c.end()
			return
		}
	}
}

// mayPass waits until what a connection has read may pass, and reports whether it may at
// all.
func (p *Proxy) mayPass(c *proxied) bool {
	for {
		p.mu.Lock()
		silent, delay, healed := p.silent, p.delay, p.healed
		p.mu.Unlock()
		var late <-chan time.Time
		if !silent {
			late = time.After(delay)
		}
		select {
		case <-late:
			select {
			case <-c.frozen: // both: it is frozen
				return false
			default:
				return true
			}
		case <-c.frozen:
			return false
		case <-c.ended:
			return true
		case <-healed:
		}
	}
}

// Cut ends all connections.
func (p *Proxy) Cut() { p.each(func(c *proxied) { c.end() }) }

// Freeze makes all connections fall silent for good. Both ends stay open, and closing one
// is not passed on to the other. New connections pass.
func (p *Proxy) Freeze() { p.each(func(c *proxied) { c.freeze() }) }

// HalfOpen closes the server's end of all connections, without the clients noticing.
func (p *Proxy) HalfOpen() {
	p.each(func(c *proxied) {
		c.freeze()
		c.server.Close()
	})
}

func (p *Proxy) each(f func(c *proxied)) {
	p.mu.Lock()
	conns := make([]*proxied, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	for _, c := range conns {
		f(c)
	}
}

// Silence holds up everything, including new connections, which are accepted and not
// answered.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

// Heal lets pass what Silence held up, and ends delays.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent, p.delay = false, 0
	close(p.healed)
	p.healed = make(chan struct{})
}

// Delay makes everything that passes wait for a while.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Refuse answers the next connections with these SQLSTATEs, one each, like a server that
// can't accept them.
func (p *Proxy) Refuse(codes ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = append(p.refuse, codes...)
}

// Refusing is how many connections are still to be refused.
func (p *Proxy) Refusing() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.refuse)
}

// refuse answers the first message of a client with an error, and hangs up.
func refuse(client net.Conn, code string) {
	head := make([]byte, 4)
	if _, err := client.Read(head); err != nil {
		return
	}
	client.Read(make([]byte, 4<<10)) // the rest of the message, which does not matter
	client.Write(errorResponse("FATAL", code, "not now"))
}

// Open is how many connections there are.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}
