package httpd_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hansard"
	"hansard/filestore"
	"hansard/httpd"
	"hansard/internal/bench"
	"hansard/memstore"
)

// serveFiles serves a file store with one session.
func serveFiles(b *testing.B) *served {
	b.Helper()
	store, err := filestore.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	v := serve(b, store)
	if _, err := store.Create(b.Context(), "s", hansard.Meta{}); err != nil {
		b.Fatal(err)
	}
	return v
}

var kibibyte = []byte(`"` + strings.Repeat("m", 1022) + `"`)

// BenchmarkWire: 64 clients append 1 KiB events to one session, through the library, over HTTP
// and over WebSocket, on the same engine. Compare the three.
func BenchmarkWire(b *testing.B) {
	const clients = 64
	body := append(append([]byte(`{"events":[{"role":"assistant","data":`), kibibyte...), "}]}"...)
	for _, way := range []struct {
		name   string
		client func(b *testing.B, v *served) (appendOne func() error, done func())
	}{
		{"library", func(b *testing.B, v *served) (func() error, func()) {
			batch := hansard.Batch{Events: []hansard.Event{{Role: "assistant", Data: kibibyte}}}
			return func() error { _, err := v.store.Append(context.Background(), "s", batch); return err }, func() {}
		}},
		{"http", func(b *testing.B, v *served) (func() error, func()) {
			transport := &http.Transport{}
			c := &http.Client{Transport: transport}
			return func() error {
				req, err := http.NewRequest("POST", v.url+"/v1/sessions/s/events", bytes.NewReader(body))
				if err != nil {
					return err
				}
				req.Header.Set("Authorization", "Bearer "+v.tokens["admin"])
				res, err := c.Do(req)
				if err != nil {
					return err
				}
				defer res.Body.Close()
				if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != 201 {
					return fmt.Errorf("%s %w", res.Status, err)
				}
				return nil
			}, transport.CloseIdleConnections
		}},
		{"websocket", func(b *testing.B, v *served) (func() error, func()) {
			c := v.socket("admin")
			message := append(append([]byte(`{"op":"append","session":"s","batch":`), body...), '}')
			return func() error {
				if err := c.Write(c.ctx, websocket.MessageText, message); err != nil {
					return err
				}
				_, text, err := c.Conn.Read(c.ctx)
				if err == nil && !bytes.Contains(text, []byte(`"stored"`)) {
					err = fmt.Errorf("%s", text)
				}
				return err
			}, func() { c.CloseNow() }
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			v := serveFiles(b)
			var left atomic.Int64
			left.Store(int64(b.N))
			took := make([][]time.Duration, clients)
			var wg sync.WaitGroup
			gate := make(chan struct{})
			for i := range clients {
				appendOne, done := way.client(b, v)
				defer done()
				wg.Go(func() {
					<-gate
					for left.Add(-1) >= 0 {
						began := time.Now()
						if err := appendOne(); err != nil {
							b.Error(err)
							return
						}
						took[i] = append(took[i], time.Since(began))
					}
				})
			}
			b.ResetTimer()
			close(gate)
			wg.Wait()
			b.StopTimer()
			all := slices.Sorted(slices.Values(slices.Concat(took...)))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkFollowers: one appender of 1 KiB events to a session that nobody follows, and to one
// with one or a thousand followers, which run in their own process and all get every event. The
// two take turns, and the followers catch up before it goes on. The ratio must be about 1:
// followers must not slow the appender down.
func BenchmarkFollowers(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkFollowers(b, n) })
	}
}

func benchmarkFollowers(b *testing.B, followers int) {
	const pairs, each = 15, 2000
	v := serveFiles(b)
	if _, err := v.store.Create(b.Context(), "alone", hansard.Meta{}); err != nil {
		b.Fatal(err)
	}
	c := startCrowd(b, v, followers)
	batch := hansard.Batch{Events: []hansard.Event{{Role: "assistant", Data: kibibyte}}}
	run := func(id hansard.SessionID) float64 {
		began := time.Now()
		for range each {
			if _, err := v.store.Append(b.Context(), id, batch); err != nil {
				b.Fatal(err)
			}
		}
		took := time.Since(began)
		if id == "s" {
			c.caughtUp(b, v)
		}
		return float64(took.Microseconds()) / each
	}
	var alone, followed, ratios []float64
	for b.Loop() {
		for i := range pairs {
			var a, f float64
			if i%2 == 0 {
				a, f = run("alone"), run("s")
			} else {
				f, a = run("s"), run("alone")
			}
			alone, followed, ratios = append(alone, a), append(followed, f), append(ratios, f/a)
		}
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	b.ReportMetric(0, "ns/op") // the total time means nothing
	b.ReportMetric(median(alone), "µs/append-alone")
	b.ReportMetric(median(followed), "µs/append-followed")
	b.ReportMetric(median(ratios), "followed/alone")
	b.Logf("followed/alone, sorted: %.2f", ratios)
}

// crowdVariable turns this program into a crowd of followers: ADDRESS TOKEN N.
const crowdVariable = "HANSARD_TEST_CROWD"

// crowd is a process of followers.
type crowd struct{ says *bufio.Reader }

// startCrowd starts followers and waits until all of them follow.
func startCrowd(b *testing.B, v *served, n int) *crowd {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	if _, err := exec.LookPath("nice"); err == nil {
		// Real followers have their own machines: their cost here is not part of the server's.
		cmd = exec.Command("nice", "-n", "19", os.Args[0], "-test.run=^$")
	}
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", crowdVariable, strings.TrimPrefix(v.url, "http://"), v.tokens["reader"], n))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	c := &crowd{bufio.NewReader(out)}
	c.hear(b, "following")
	return c
}

// caughtUp waits until all of them have received everything.
func (c *crowd) caughtUp(b *testing.B, v *served) {
	b.Helper()
	if _, err := v.store.Append(b.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte(`"mark"`)}}}); err != nil {
		b.Fatal(err)
	}
	c.hear(b, "caught up")
}

func (c *crowd) hear(b *testing.B, want string) {
	b.Helper()
	if line, err := c.says.ReadString('\n'); err != nil || line != want+"\n" {
		b.Fatalf("the followers say %q, %v; want %q", line, err, want)
	}
}

// beCrowd follows, if this process was started for it: each follower must get every event in
// order. It reports when all of them have met a mark.
func beCrowd() {
	order := os.Getenv(crowdVariable)
	if order == "" {
		return
	}
	var address, token string
	var n int
	if _, err := fmt.Sscan(order, &address, &token, &n); err != nil {
		panic(err)
	}
	marks := make(chan struct{})
	for range n {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(conn, "GET /v1/sessions/s/events/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", token)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != 200 {
			panic(fmt.Sprint(res, err))
		}
		go func() {
			seq, lines := 0, bufio.NewReaderSize(res.Body, 64<<10)
			for {
				line, err := lines.ReadSlice('\n')
				if err != nil {
					panic(fmt.Sprintf("after seq %d: %v", seq, err))
				}
				if id, ok := bytes.CutPrefix(line, []byte("id: ")); ok {
					if seq++; string(bytes.TrimSpace(id)) != strconv.Itoa(seq) {
						panic(fmt.Sprintf("got %s, want %d", id, seq))
					}
				}
				if bytes.Contains(line, []byte(`"mark"`)) {
					marks <- struct{}{}
				}
			}
		}()
	}
	fmt.Println("following")
	for {
		for range n {
			<-marks
		}
		fmt.Println("caught up")
	}
}

// piped is a listener whose connections are in memory: ten thousand of them take no descriptors,
// of which there may be too few.
type piped struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newPiped() *piped {
	p := &piped{conns: make(chan net.Conn), done: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.done) })
	return p
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error   { p.close(); return nil }
func (p *piped) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// BenchmarkIdleConnections: the memory that the server holds for each of ten thousand idle
// connections: between two requests, as a stream, as a WebSocket.
func BenchmarkIdleConnections(b *testing.B) {
	const connections = 10_000
	for _, way := range []struct{ name, path, headers string }{
		{"keepalive", "/v1/sessions/s", ""},
		{"stream", "/v1/sessions/s/events/stream?after=1", ""},
		{"websocket", "/v1/ws", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"},
	} {
		b.Run(way.name, func(b *testing.B) {
			l := newPiped()
			v := crowded(b, memstore.New(), unhurried, httpd.Tight{Conns: 3 * connections, Requests: 2 * connections, Sockets: 2 * connections}, l)
			if _, err := v.store.Append(b.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{{Data: kibibyte}}}); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				before := heapAndStacks()
				held := make([]net.Conn, connections)
				for i := range held {
					here, there := net.Pipe()
					l.conns <- there
					held[i] = here
					fmt.Fprintf(here, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s\r\n", way.path, v.tokens["greedy"], way.headers)
					if _, err := io.ReadFull(here, make([]byte, len("HTTP/1.1 200"))); err != nil {
						b.Fatal(err)
					}
					go io.Copy(io.Discard, here)
				}
				b.ReportMetric(float64(heapAndStacks()-before)/connections/1024, "KiB/connection")
				for _, c := range held {
					c.Close()
				}
				eventually(b, "they are gone", func() bool { all, _ := v.server.Connections(); return all == 0 })
			}
		})
	}
}

// heapAndStacks is the memory in use after a collection.
func heapAndStacks() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// BenchmarkReadLines: 10,000 events of 1 KiB as lines, from a file store, compared with the same
// bytes from http.FileServer and with events that are not lent. Compare the three; the client
// discards the bytes in all of them.
func BenchmarkReadLines(b *testing.B) {
	const events = 10_000
	v := serveFiles(b)
	for range events / 1000 {
		var batch hansard.Batch
		for range 1000 {
			batch.Events = append(batch.Events, hansard.Event{Role: "assistant", Data: kibibyte})
		}
		if _, err := v.store.Append(b.Context(), "s", batch); err != nil {
			b.Fatal(err)
		}
	}
	giving := serve(b, struct{ hansard.Store }{v.store})
	dir := b.TempDir()
	files := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer files.Close()
	fetch := func(v *served, url string) (n int64) {
		req, err := http.NewRequestWithContext(b.Context(), "GET", url, nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+v.tokens["admin"])
		req.Header.Set("Accept", "application/x-ndjson")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != 200 {
			b.Fatalf("status %d", res.StatusCode)
		}
		n, err = io.Copy(io.Discard, res.Body)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	size := fetch(v, v.url+"/v1/sessions/s/events")
	if err := os.WriteFile(filepath.Join(dir, "s"), make([]byte, size), 0o600); err != nil {
		b.Fatal(err)
	}
	for _, way := range []struct {
		name string
		v    *served
		url  string
	}{{"file server", v, files.URL + "/s"}, {"lent", v, v.url + "/v1/sessions/s/events"}, {"given", giving, giving.url + "/v1/sessions/s/events"}} {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(size)
			before := bench.SpentSoFar()
			for b.Loop() {
				if n := fetch(way.v, way.url); n != size {
					b.Fatalf("%d bytes, want %d", n, size)
				}
			}
			b.ReportMetric(float64(bench.SpentSoFar().Since(before).CPU.Microseconds())/float64(b.N)/events, "cpu-µs/event")
		})
	}
}
