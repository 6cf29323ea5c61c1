package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/httpd"
	"hansard/httpd/conversations"
	"hansard/httpd/web"
)

// drainMax is how long a server that was told to stop waits for what is under way.
const drainMax = 10 * time.Second

// serveOptions are the flags of serve.
type serveOptions struct {
	listen, socket   string
	token, tokenFile string
	cert, key        string
	hosts            []string
	readOnly         bool
	verbose          bool
}

func newServe(a *app) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the store over HTTP, with a page for the browser",
		Long: `Serve the store to agents in any language and to people in a browser: an API over
HTTP and WebSocket, and a page at /. Any number of servers may serve one store at
the same time, beside commands and programs that use it directly.

At the first start it makes a token and prints it once, as an address to open. The
file it is kept in (tokens, in the store's directory) has only its hash: "hansard
token add" makes more, "hansard token rm" withdraws them.

It listens on the loopback only. Any other address needs --tls-cert and --tls-key,
and --host for each name by which clients will call it. --socket listens on a Unix
socket, besides the address or with --listen "" instead of it.

Ctrl-C and SIGTERM stop it: it answers what is under way and lets the rest go, which
comes back to it, or to another, and continues where it was.`,
		Example: `  hansard serve
  hansard serve --store ./sessions --listen 127.0.0.1:8080
  hansard serve --listen 0.0.0.0:4267 --tls-cert c.pem --tls-key k.pem --host a.example
  hansard serve --listen "" --socket /run/hansard.sock --read-only
  HANSARD_TOKEN=... hansard --store http://127.0.0.1:4267 ls`,
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			want := creating
			if o.readOnly {
				want = reading
			}
			return a.withStore(want, func(s hansard.Store) error { return a.serve(cmd.Context(), s, &o) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.listen, "listen", "127.0.0.1:4267", "the `ADDRESS` to listen on; port 0 takes a free one")
	flags.StringVar(&o.socket, "socket", "", "listen on a Unix socket at this `PATH`")
	flags.StringVar(&o.token, "token", "", "one more `TOKEN` that may do everything, for this run")
	flags.StringVar(&o.tokenFile, "token-file", "", "keep the tokens in this `FILE` instead of the store's directory")
	flags.StringVar(&o.cert, "tls-cert", "", "the certificate, a PEM `FILE`")
	flags.StringVar(&o.key, "tls-key", "", "the certificate's key, a PEM `FILE`")
	flags.StringArrayVar(&o.hosts, "host", nil, "a `NAME` by which clients may call this server; may be repeated")
	flags.BoolVar(&o.readOnly, "read-only", false, "refuse everything that would change the store")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "log every request")
	return cmd
}

// check refuses what can't be served, or not safely, before anything is opened.
func (o *serveOptions) check() error {
	if o.listen == "" && o.socket == "" {
		return &usageError{"there is nothing to listen on", "give --listen ADDRESS or --socket PATH"}
	}
	if (o.cert == "") != (o.key == "") {
		return &usageError{"a certificate needs its key", "give both --tls-cert and --tls-key"}
	}
	if o.cert != "" {
		if _, err := tls.LoadX509KeyPair(o.cert, o.key); err != nil {
			return &usageError{"the certificate can't be used: " + err.Error(), "both are PEM files: a certificate, and the private key it was made for"}
		}
	}
	for _, host := range o.hosts {
		if _, err := netip.ParseAddr(host); err != nil && (host == "" || strings.ContainsAny(host, ":/[]@ ")) {
			return &usageError{fmt.Sprintf("--host: %q is not a name", host), "write a.example, without http:// and without a port"}
		}
	}
	if o.token != "" {
		if err := httpd.CheckToken(o.token); err != nil {
			return &usageError{"--token: " + err.Error(), "leave it out: one is made at the first start"}
		}
	}
	if o.listen == "" {
		return nil
	}
	address, err := net.ResolveTCPAddr("tcp", o.listen)
	if err != nil {
		return &usageError{fmt.Sprintf("--listen: %q is not an address", o.listen), "write 127.0.0.1:4267"}
	}
	ip, _ := netip.AddrFromSlice(address.IP)
	if !ip.Unmap().IsLoopback() && o.cert == "" {
		return &usageError{fmt.Sprintf("--listen %s is not the loopback: tokens and sessions would cross the network in the clear", o.listen),
			"give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy that has them"}
	}
	return nil
}

// serve runs a server until the context ends.
func (a *app) serve(ctx context.Context, store hansard.Store, o *serveOptions) error {
	tokens, err := a.openTokens(o.tokenFile)
	if err != nil && (err != errNoTokenDir || o.token == "") { // the given one is enough
		return err
	}
	// First the listeners, then the first token: it can be shown only once, and a
	// server that did not get its port would have made it for nobody.
	listeners, err := o.listenAll()
	if err != nil {
		return err
	}
	access, fresh, err := o.access(tokens)
	if err != nil {
		for _, l := range listeners {
			l.Close()
		}
		return err
	}
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
	server := httpd.New(store, httpd.Options{
		Access:        access,
		Hosts:         o.hostNames(),
		ReadOnly:      o.readOnly,
		Log:           log,
		Version:       buildVersion(),
		Page:          page(),
		Conversations: openAIRoutes(log),
	})
	a.warnOfSettings(ctx, store)
	if err := a.announce(o, listeners, fresh); err != nil {
		return err
	}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() {
			if o.cert != "" && l.Addr().Network() != "unix" {
				failed <- server.ServeTLS(l, o.cert, o.key)
				return
			}
			failed <- server.Serve(l)
		}()
	}
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainMax)
	defer cancel()
	if stopErr := server.Shutdown(drain); err == nil {
		err = stopErr
	}
	return err
}

// warnOfSettings tells in which ways a database is set up not to keep what it
// acknowledges. That it can't be asked is no reason not to serve.
func (a *app) warnOfSettings(ctx context.Context, store hansard.Store) {
	db, ok := store.(interface {
		Warnings(ctx context.Context) ([]string, error)
	})
	if !ok {
		return
	}
	warnings, err := db.Warnings(ctx)
	if err != nil {
		warnings = append(warnings, "the settings of the database can't be read: "+err.Error())
	}
	for _, w := range warnings {
		fmt.Fprintf(a.stderr, "hansard: warning: %s\n", w)
	}
}

// page is what the browser gets.
func page() http.Handler { return web.Handler() }

func (o *serveOptions) hostNames() []string {
	var names []string
	for _, h := range o.hosts {
		names = append(names, strings.ToLower(h))
	}
	return names
}

// access tells who may do what, and makes the first token where there is none. Only
// then it is given: to be printed, once. Without a place for tokens there is --token.
func (o *serveOptions) access(tokens *httpd.Tokens) (access httpd.Access, fresh string, err error) {
	switch {
	case tokens == nil:
		return httpd.Single(o.token), "", nil
	case o.token != "":
		return httpd.Either(httpd.Single(o.token), tokens), "", nil
	}
	if len(tokens.List()) == 0 {
		fresh, err = tokens.Add("owner", httpd.Admin)
		if errors.Is(err, httpd.ErrTokenExists) {
			err = nil // another server was first, and printed it
		}
	}
	return tokens, fresh, err
}

func (o *serveOptions) listenAll() ([]net.Listener, error) {
	var out []net.Listener
	if o.listen != "" {
		l, err := net.Listen("tcp", o.listen)
		if err != nil {
			return nil, &hinted{fmt.Errorf("can't listen on %s: %w", o.listen, err), "another program may be using the port: --listen 127.0.0.1:0 takes a free one"}
		}
		out = append(out, l)
	}
	if o.socket != "" {
		l, err := listenSocket(o.socket)
		if err != nil {
			for _, open := range out {
				open.Close()
			}
			return nil, fmt.Errorf("can't listen on the socket: %w", err)
		}
		out = append(out, l)
	}
	return out, nil
}

// listenSocket listens on a Unix socket that only its owner may use. One that a
// server left behind when it was killed is in nobody's use: it is replaced.
func listenSocket(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			c.Close()
			return nil, errors.New("another server listens there")
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// Between listening and chmod others could connect: in a directory of its
	// own it gets its permissions first, and its name last.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".hansard-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	private := filepath.Join(dir, "s")
	l, err := net.Listen("unix", private)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	err = os.Chmod(private, 0o600)
	if err == nil {
		err = os.Rename(private, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &socketListener{l, path}, nil
}

// socketListener removes its socket when it is closed.
type socketListener struct {
	net.Listener
	path string
}

func (l *socketListener) Close() error {
	err := l.Listener.Close()
	_ = os.Remove(l.path) // another server may have replaced it; then it is gone for a moment
	return err
}

// announce tells where the server is, and the fresh token, as an address to open.
func (a *app) announce(o *serveOptions, listeners []net.Listener, fresh string) error {
	for _, l := range listeners {
		address := "unix:" + o.socket
		if l.Addr().Network() != "unix" {
			scheme := "http"
			if o.cert != "" {
				scheme = "https"
			}
			address = scheme + "://" + o.publicHost(l.Addr()) + "/"
		}
		if a.json {
			line := struct {
				URL   string `json:"url"`
				Token string `json:"token,omitempty"` // only when it was made just now
			}{address, fresh}
			if err := a.out.jsonLine(line); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(a.out, "serving %s\n", address)
		if fresh != "" && l.Addr().Network() != "unix" {
			fmt.Fprintf(a.out, "open    %s#token=%s\n", address, fresh)
		}
	}
	switch {
	case a.json:
	case fresh != "":
		fmt.Fprintf(a.out, "        the token is shown this once; for commands: export HANSARD_TOKEN=%s\n", fresh)
	case o.token == "":
		fmt.Fprintf(a.out, "        with the token that was printed at the first start, or one from: %s\n", a.again("token", "add", "NAME"))
	}
	return a.out.Flush()
}

// publicHost is how clients name the listener.
func (o *serveOptions) publicHost(address net.Addr) string {
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	if len(o.hosts) > 0 {
		host = o.hosts[0]
	}
	return net.JoinHostPort(host, port)
}

// openAIRoutes are those of OpenAI's Conversations API.
func openAIRoutes(log *slog.Logger) func(hansard.Store) http.Handler {
	return func(store hansard.Store) http.Handler {
		return conversations.New(store, &conversations.Options{Log: log})
	}
}
