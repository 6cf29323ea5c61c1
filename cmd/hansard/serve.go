package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/httpd"
	"hansard/httpd/conversations"
	"hansard/httpd/web"
	"hansard/search"
)

// drainMax is how long a stopping server waits for requests in progress.
const drainMax = 10 * time.Second

// serveOptions are the flags of serve.
type serveOptions struct {
	listen, socket   string
	tokenFrom        string
	token, tokenFile string // token is what --token-from holds
	cert, key        string
	audit            string
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

The first start creates a token and prints it once, as a URL to open. The file it is
kept in (tokens, in the store's directory) has only its hash: "hansard
token add" makes more, "hansard token rm" withdraws them. Later starts print a link
that logs a browser in: once, within ten minutes. "hansard open" makes others.

It listens on the loopback only. Any other address needs --tls-cert and --tls-key,
and --host for each name by which clients will call it. --socket listens on a Unix
socket, besides the address or with --listen "" instead of it.

Ctrl-C and SIGTERM stop it: it finishes the requests in progress and closes streams and
sockets. Their clients reconnect, to it or to another server, and continue where they
were.`,
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
			a.log = o.logger(a.stderr)
			a.searching = &search.Options{ReadOnly: o.readOnly, Log: a.log}
			return a.withStore(want, func(s hansard.Store) error { return a.serve(cmd.Context(), s, &o) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.listen, "listen", "127.0.0.1:4267", "the `ADDRESS` to listen on; port 0 takes a free one")
	flags.StringVar(&o.socket, "socket", "", "listen on a Unix socket at this `PATH`")
	flags.StringVar(&o.tokenFrom, "token-from", "", "one more token that may do everything, for this run, from this `FILE`")
	flags.StringVar(&o.tokenFile, "token-file", "", "keep the tokens in this `FILE` instead of the store's directory")
	flags.StringVar(&o.cert, "tls-cert", "", "the certificate, a PEM `FILE`")
	flags.StringVar(&o.key, "tls-key", "", "the certificate's key, a PEM `FILE`")
	flags.StringArrayVar(&o.hosts, "host", nil, "a `NAME` by which clients may call this server; may be repeated")
	flags.StringVar(&o.audit, "audit-log", "", "note denied and administrative requests in this `FILE`, a line of JSON each; - is stderr")
	flags.BoolVar(&o.readOnly, "read-only", false, "refuse everything that would change the store")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "log every request")
	return cmd
}

// check refuses options that can't be served safely, or at all, before anything is
// opened.
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
	if o.tokenFrom != "" {
		var err error
		if o.token, err = readToken(o.tokenFrom); err != nil {
			return fmt.Errorf("--token-from: %w", err)
		}
		if err := httpd.CheckToken(o.token); err != nil {
			return &usageError{"--token-from: " + err.Error(), "leave it out: one is made at the first start"}
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

// logger is the log of the server and its store.
func (o *serveOptions) logger(w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// serve runs a server until the context ends.
func (a *app) serve(ctx context.Context, store hansard.Store, o *serveOptions) (err error) {
	audit, closeAudit, err := a.openAudit(o.audit)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := closeAudit(); err == nil {
			err = closeErr
		}
	}()
	tokens, err := a.openTokens(ctx, o.tokenFile, store)
	if err != nil && (err != errNoTokenDir || o.token == "") { // the given token is enough
		return err
	}
	// First the listeners, then the first token: it can be shown only once, and if the
	// server then failed to get its port, nobody would see it.
	listeners, err := o.listenAll()
	if err != nil {
		return err
	}
	access, fresh, login, err := o.access(tokens)
	if err != nil {
		for _, l := range listeners {
			l.Close()
		}
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return &hinted{fmt.Errorf("the first token can't be kept: %w", err), "give a token with --token-from FILE, or keep the tokens elsewhere with --token-file FILE"}
		}
		return err
	}
	server := httpd.New(store, httpd.Options{
		Access:        access,
		Hosts:         o.hostNames(),
		ReadOnly:      o.readOnly,
		Log:           a.log,
		Audit:         audit,
		Version:       buildVersion(),
		Page:          page(),
		Conversations: openAIRoutes(a.log),
	})
	a.warnOfSettings(ctx, store)
	a.warnOfForeign(tokens)
	if err := a.announce(o, listeners, fresh, login); err != nil {
		return err
	}
	stopIndexing := a.indexInBackground(ctx, store)
	defer stopIndexing()
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

// indexInBackground keeps the search index up to date until stop is called.
func (a *app) indexInBackground(ctx context.Context, store hansard.Store) (stop func()) {
	var keep func(context.Context)
	if db, ok := store.(interface{ KeepSearched(context.Context) }); ok {
		keep = db.KeepSearched
	} else if a.index != nil {
		keep = func(ctx context.Context) { a.index.Background(ctx, store) }
	} else {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		keep(ctx)
	}()
	return func() { cancel(); <-done }
}

// warnOfForeign warns about tokens that came with the store from elsewhere.
func (a *app) warnOfForeign(tokens *httpd.Tokens) {
	if tokens == nil || len(tokens.Foreign()) == 0 {
		return
	}
	var names []string
	for _, k := range tokens.Foreign() {
		names = append(names, k.Name)
	}
	fmt.Fprintf(a.stderr, "hansard: warning: the token file came from elsewhere, or is another store's: its tokens let nobody in (%s); if they are yours: %s\n",
		escapeLine(strings.Join(names, ", ")), a.again("token", "adopt"))
}

// warnOfSettings warns about database settings under which acknowledged writes can be
// lost. If they can't be read, the server runs anyway.
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
		fmt.Fprintf(a.stderr, "hansard: warning: %s\n", escapeLine(w))
	}
}

// page is the page for browsers.
func page() http.Handler { return web.Handler() }

func (o *serveOptions) hostNames() []string {
	var names []string
	for _, h := range o.hosts {
		names = append(names, strings.ToLower(h))
	}
	return names
}

// access returns who may do what, and makes the first token if there is none. Only
// then fresh is set: it is printed, once. Without a place for tokens there is only
// that of --token-from. login is a token from which codes are made, for links to the
// page.
func (o *serveOptions) access(tokens *httpd.Tokens) (access httpd.Access, fresh, login string, err error) {
	switch {
	case tokens == nil:
		return httpd.Single(o.token), "", o.token, nil
	case o.token != "":
		tokens.Accept("given", o.token, httpd.Admin)
		return tokens, "", o.token, nil
	}
	if len(tokens.List()) == 0 {
		fresh, err = tokens.Add(httpd.Token{Name: "owner", Rights: httpd.Admin.String()})
		if errors.Is(err, httpd.ErrTokenExists) {
			err = nil // another server was faster, and has printed it
		}
	}
	if fresh != "" || err != nil {
		return tokens, fresh, fresh, err
	}
	// Existing tokens are known only to their owners: the page gets one that only this
	// process knows.
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	login = hex.EncodeToString(secret[:])
	name := "page"
	for slices.ContainsFunc(tokens.List(), func(k httpd.Token) bool { return k.Name == name }) {
		name += "_"
	}
	tokens.Accept(name, login, httpd.Admin)
	return tokens, "", login, nil
}

// announce prints where the server is, and an address to open: with the fresh token,
// or with a code that works once.
func (a *app) announce(o *serveOptions, listeners []net.Listener, fresh, login string) error {
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
				Token string `json:"token,omitempty"` // only if it was just made
			}{address, fresh}
			if err := a.out.jsonLine(line); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(a.out, "serving %s\n", address)
		switch {
		case l.Addr().Network() == "unix":
		case fresh != "":
			fmt.Fprintf(a.out, "open    %s#token=%s\n", address, fresh)
		default:
			link, err := codeLink(address, login, "", codeWithin)
			if err != nil {
				return err
			}
			again := []string{"open"}
			if address != shareURL+"/" {
				again = append(again, "--url", address)
			}
			fmt.Fprintf(a.out, "open    %s\n        once, within %s; then: %s\n", link, humanDuration(codeWithin), a.again(again...))
		}
	}
	switch {
	case a.json:
	case fresh != "":
		fmt.Fprintf(a.out, "        the token is shown this once; for commands: export HANSARD_TOKEN=%s\n", fresh)
	case o.token == "":
		fmt.Fprintf(a.out, "        programs need the token that was printed at the first start, or one from: %s\n", a.again("token", "add", "NAME"))
	}
	return a.out.Flush()
}

// openAIRoutes are those of OpenAI's Conversations API.
func openAIRoutes(log *slog.Logger) func(hansard.Store) http.Handler {
	return func(store hansard.Store) http.Handler {
		return conversations.New(store, &conversations.Options{Log: log})
	}
}
