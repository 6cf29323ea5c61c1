//go:build unix

package test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hansard"
	"hansard/client"
	"hansard/filestore"
	"hansard/internal/wire"
)

// TestSameLog: the same appends through the library, the command, HTTP and WebSocket give the
// same log.
func TestSameLog(t *testing.T) {
	rng := seeded(t)
	runs := scale(3)
	dir := newStore(t)
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s := startServer(t, dir)
	remote, err := client.New("http://"+s.address, &client.Options{Token: serverToken})
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	ctx := t.Context()
	conn, _, err := websocket.Dial(ctx, "ws://"+s.address+"/v1/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + serverToken}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	ways := map[string]func(id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error){
		"library": func(id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) { return store.Append(ctx, id, b) },
		"client":  func(id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) { return remote.Append(ctx, id, b) },
		"command": func(id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			return appendByCommand(t, dir, id, b)
		},
		"socket": func(id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			return appendBySocket(ctx, conn, id, b)
		},
	}
	for run := range runs {
		for n := range 15 {
			b := randomBatch(rng, n)
			for way, appendIt := range ways {
				id := hansard.SessionID(fmt.Sprint(way, run))
				r, err := appendIt(id, b)
				if err != nil {
					t.Fatalf("%s: %v", way, err)
				}
				if want := int(r.Last - r.First + 1); want != len(b.Events) {
					t.Errorf("%s: receipt %+v for %d events", way, r, len(b.Events))
				}
				again, ok := resent(b)
				if !ok {
					continue
				}
				if r, err := appendIt(id, again); err != nil || !r.Replayed || r.First != 0 || len(r.Seqs) != len(b.Events) {
					t.Errorf("%s: events with known ids, once more: %+v, %v", way, r, err)
				}
			}
		}
		want := spelled(t, store, hansard.SessionID(fmt.Sprint("library", run)))
		for way := range ways {
			id := hansard.SessionID(fmt.Sprint(way, run))
			for reader, from := range map[string]hansard.Store{"library": store, "client": remote} {
				if got := spelled(t, from, id); got != want {
					t.Errorf("%s, read by the %s:\n%s\nwant\n%s", way, reader, got, want)
				}
			}
		}
	}
}

// randomBatch is a batch that all four ways can carry: the command takes one event per line, so
// its data has no line breaks.
func randomBatch(rng *mathrand.Rand, n int) hansard.Batch {
	data := []string{`"plain"`, `{"a" : [1, 2.50, null]}`, `"é <b> \u2028 \ud800"`, `-0.0e+5`, `{"data":{"events":[]}}`, `[[[[]]]]`, `""`, `{"x":"` + strings.Repeat("y", 3000) + `"}`}
	b := hansard.Batch{Create: true}
	for i := range 1 + rng.IntN(4) {
		var id string
		var at time.Time
		if n%2 == 1 { // ids, and times with a zone and more digits than are kept
			id = fmt.Sprintf("é %d/%d", n, i)
			at = time.Date(2026, 1, 2, 3, 4, 5, rng.IntN(1e9), time.FixedZone("", 3600))
		}
		b.Events = append(b.Events, hansard.Event{
			Kind: []string{"message", "tool_call", "own \"kind\""}[rng.IntN(3)], Role: []string{"", "user", "ä\n"}[rng.IntN(3)],
			Author: []string{"", "ann"}[rng.IntN(2)], Inbox: rng.IntN(4) == 0, Data: []byte(data[rng.IntN(len(data))]), ID: id, At: at})
	}
	if n%4 == 3 {
		title := fmt.Sprint("title ", n)
		b.Patch = &hansard.Patch{Title: &title, State: fmt.Appendf(nil, `{"n":%d.0}`, n)}
	}
	return b
}

// resent is a batch whose events have ids, as another writer may spell it: the usual kind left out,
// and times in UTC. Not ok: they have none.
func resent(b hansard.Batch) (again hansard.Batch, ok bool) {
	again = b
	again.Events = slices.Clone(b.Events)
	for i := range again.Events {
		e := &again.Events[i]
		if e.ID == "" {
			return again, false
		}
		if e.At = e.At.UTC(); e.Kind == hansard.KindMessage {
			e.Kind = ""
		}
	}
	return again, true
}

func appendByCommand(t *testing.T, store string, id hansard.SessionID, b hansard.Batch) (r hansard.Receipt, err error) {
	var input []byte
	for i := range b.Events {
		e := b.Events[i]
		if i == len(b.Events)-1 {
			e.Patch = b.Patch
		}
		input = append(wire.AppendLine(input, &e), '\n')
	}
	path := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(path, input, 0o600); err != nil {
		return r, err
	}
	out := ok(t, store, "append", string(id), "--create", "--jsonl", path, "--json")
	return r, json.Unmarshal([]byte(out), &r)
}

func appendBySocket(ctx context.Context, conn *websocket.Conn, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	message := fmt.Appendf(nil, `{"op":"append","session":%q,"batch":`, id)
	message = append(wire.AppendBatch(message, &b), '}')
	if err := conn.Write(ctx, websocket.MessageText, message); err != nil {
		return hansard.Receipt{}, err
	}
	_, text, err := conn.Read(ctx)
	if err != nil {
		return hansard.Receipt{}, err
	}
	var m socketMessage
	if err := json.Unmarshal(text, &m); err != nil || m.Op != "stored" {
		return hansard.Receipt{}, fmt.Errorf("%s: %w", text, err)
	}
	return m.Receipt, nil
}

// spelled is a session's log without its times, and its metadata.
func spelled(t *testing.T, s hansard.Store, id hansard.SessionID) string {
	t.Helper()
	var out []byte
	for e, err := range s.Read(t.Context(), id, hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		e.Time, e.By = time.Time{}, "" // when it was written, and with which token
		out = append(wire.AppendExactLine(out, &e), '\n')
	}
	info, err := s.Stat(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return string(out) + info.Title + string(info.State)
}

// TestServeTLS: with a certificate it serves https, and nothing unencrypted.
func TestServeTLS(t *testing.T) {
	cert, key, roots := certificate(t)
	store := newStore(t)
	p := start(t, command(store, "serve", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--token-from", serverTokenFile(t), "--json"), nil)
	var said struct{ URL string }
	if err := json.Unmarshal([]byte(p.line()), &said); err != nil || !strings.HasPrefix(said.URL, "https://") {
		t.Fatalf("it says %+v, %v", said, err)
	}
	s, err := client.New(said.URL, &client.Options{Token: serverToken, TLS: &tls.Config{RootCAs: roots}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Error(err)
	}
	res, err := http.Get(strings.Replace(said.URL, "https", "http", 1) + "v1/sessions")
	if err == nil {
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("in the clear: %s", res.Status)
		}
	}
	if r := run(t, command(said.URL, "ls")); r.code == 0 || !strings.Contains(r.stderr, "certificate") {
		t.Errorf("a certificate nobody vouches for: exit code %d, %s", r.code, r.stderr)
	}
}

// certificate makes one for the loopback.
func certificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(parsed)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyDER), roots
}
