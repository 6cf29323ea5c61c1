package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"hansard"
	"hansard/httpd"
	"hansard/mcp"
)

// mcpOptions are the flags of mcp.
type mcpOptions struct {
	listen, tokenFrom, token string
	allowAppend              bool
}

func newMCP(a *app) *cobra.Command {
	var o mcpOptions
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Let models read the sessions, over the Model Context Protocol",
		Long: `Serve the store to a model, over the Model Context Protocol (MCP), on standard input
and output: an agent starts this command and talks to it. The model gets tools that
list, search and read sessions, and the sessions as resources. Nothing can be changed
or deleted; with --allow-append messages can be left in a session's inbox.

What the model gets is text of bounded size, each event cited as session#seq, without
pictures and other encoded data. Cut text says so, and names the call that returns more.

With --listen it serves HTTP instead, on the loopback only, at /mcp, to those who send
the token: that of --token-from, or one that is made for this run and printed.`,
		Example: `  claude mcp add hansard -- hansard mcp
  codex mcp add hansard -- hansard mcp --store ./sessions
  hansard mcp --allow-append
  hansard mcp --listen 127.0.0.1:4268 --token-from ~/.hansard-mcp`,
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			want := reading
			if o.allowAppend {
				want = writing
			}
			return a.withStore(want, func(s hansard.Store) error { return a.serveMCP(cmd.Context(), s, &o) })
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.allowAppend, "allow-append", false, "let the model leave messages in the inbox of sessions")
	flags.StringVar(&o.listen, "listen", "", "serve HTTP on this `ADDRESS` of the loopback; port 0 takes a free one")
	flags.StringVar(&o.tokenFrom, "token-from", "", "the token that clients have to send, from this `FILE`; for --listen")
	return cmd
}

// check refuses what can't be served safely, before anything is opened.
func (o *mcpOptions) check() error {
	if o.listen == "" {
		if o.tokenFrom != "" {
			return &usageError{"--token-from is for --listen", "on standard input and output there is no token"}
		}
		return nil
	}
	address, err := net.ResolveTCPAddr("tcp", o.listen)
	if err != nil {
		return &usageError{fmt.Sprintf("--listen: %q is not an address", o.listen), "write 127.0.0.1:4268"}
	}
	if ip, _ := netip.AddrFromSlice(address.IP); !ip.Unmap().IsLoopback() {
		return &usageError{fmt.Sprintf("--listen %s is not the loopback", o.listen), "listen on 127.0.0.1; to reach sessions from elsewhere use hansard serve, and hansard mcp --store https://… there"}
	}
	if o.tokenFrom == "" {
		var secret [32]byte
		_, _ = rand.Read(secret[:]) // never fails
		o.token = hex.EncodeToString(secret[:])
		return nil
	}
	if o.token, err = readToken(o.tokenFrom); err != nil {
		return fmt.Errorf("--token-from: %w", err)
	}
	if err := httpd.CheckToken(o.token); err != nil {
		return &usageError{"--token-from: " + err.Error(), "leave it out: one is made"}
	}
	return nil
}

// serveMCP serves until the client disconnects, or the context ends.
func (a *app) serveMCP(ctx context.Context, store hansard.Store, o *mcpOptions) error {
	log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	server := mcp.New(store, mcp.Options{Version: buildVersion().Version, AllowAppend: o.allowAppend, Log: log})
	if o.listen != "" {
		return a.listenMCP(ctx, server, o)
	}
	err := mcp.Serve(ctx, server, a.stdin, a.stdout)
	if ctx.Err() != nil {
		return nil // a signal came
	}
	return err
}

func (a *app) listenMCP(ctx context.Context, server *sdk.Server, o *mcpOptions) error {
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return &hinted{fmt.Errorf("can't listen on %s: %w", o.listen, err), "another program may be using the port: --listen 127.0.0.1:0 takes a free one"}
	}
	if err := a.announceMCP("http://"+l.Addr().String()+mcp.Path, o); err != nil {
		l.Close()
		return err
	}
	serve := &http.Server{Handler: mcp.Handler(server, o.token), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	failed := make(chan error, 1)
	go func() { failed <- serve.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainMax)
	defer cancel()
	return serve.Shutdown(drain)
}

// announceMCP prints the address, and the token if it is new.
func (a *app) announceMCP(url string, o *mcpOptions) error {
	token := ""
	if o.tokenFrom == "" {
		token = o.token
	}
	if a.json {
		line, err := json.Marshal(struct {
			URL   string `json:"url"`
			Token string `json:"token,omitempty"`
		}{url, token})
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "%s\n", line)
		return a.out.Flush()
	}
	fmt.Fprintf(a.out, "serving %s\n", url)
	if token != "" {
		fmt.Fprintf(a.out, "        for this run, clients send: Authorization: Bearer %s\n", token)
	}
	return a.out.Flush()
}
