package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/httpd"
)

const (
	// openWithin is how long the code of a link is valid if a browser gets it at once;
	// codeWithin if a person opens it.
	openWithin = 2 * time.Minute
	codeWithin = 10 * time.Minute
	// openFor is how long a page stays usable that was opened for a store in a
	// directory: the token made for it expires then.
	openFor = 12 * time.Hour
	// browserWait is how long to wait for an error from the browser's start.
	browserWait = 2 * time.Second
)

func newOpen(a *app) *cobra.Command {
	var file, address string
	var print bool
	cmd := &cobra.Command{
		Use:   "open [ID]",
		Short: "Open the server's page in the browser, logged in",
		Long: `Open the page of the server in the browser, or one session on it, logged in. The
link has a code that is good once, for two minutes, and never the token itself.

If the store is a server, the page may do what the token of HANSARD_TOKEN may. So it
is with --url where HANSARD_TOKEN is set and --store is not given. Otherwise, if the
store is a directory, its server has to run at --url; a token that may do everything and
ends after 12 hours is made for the page ("hansard token ls" lists it).

The browser is that of BROWSER, or of the desktop.`,
		Example: `  hansard open
  hansard open demo
  hansard open --print --store http://127.0.0.1:4267`,
		Args:              arguments(0, "a session id"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var id hansard.SessionID
			if len(args) > 0 {
				id = hansard.SessionID(args[0])
				a.session = args[0]
				if err := hansard.CheckID(id); err != nil {
					return err
				}
			}
			link, err := a.loginLink(cmd.Context(), id, file, address)
			if err != nil {
				return err
			}
			if a.json {
				return a.out.jsonLine(map[string]string{"url": link})
			}
			if _, err := fmt.Fprintln(a.out, escapeLine(link)); err != nil || print {
				return err
			}
			if err := a.out.Flush(); err != nil {
				return err
			}
			if err := openBrowser(link); err != nil {
				a.warn("no browser could be started; open the link yourself", err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&print, "print", false, "print the link, and start no browser")
	flags.StringVar(&file, "token-file", "", "the `FILE` the tokens are kept in")
	flags.StringVar(&address, "url", "", "the `URL` of the server, where the store is a directory (default "+shareURL+")")
	return cmd
}

// loginLink is a link to the page, or to a session on it, that logs in.
func (a *app) loginLink(ctx context.Context, id hansard.SessionID, file, address string) (string, error) {
	spec, err := a.storeSpec()
	if err != nil {
		return "", err
	}
	if file == "" && !a.storeSet && isServer(address) && !isServer(spec) {
		// A token is for a server: the one that was named, and not the default store.
		token, err := a.serverToken(address)
		if err != nil {
			return "", err
		}
		if token != "" {
			a.store, a.storeSet, spec = address, true, address
		}
	}
	if id != "" {
		if err := a.withStore(reading, func(s hansard.Store) error { _, err := s.Stat(ctx, id); return err }); err != nil {
			return "", err
		}
	}
	var token string
	switch scheme, _ := splitScheme(spec); {
	case scheme == "unix":
		return "", &usageError{"a browser can't open a Unix socket", "name the server with --store http://HOST:PORT"}
	case (scheme == "http" || scheme == "https") && file == "":
		if token, err = a.serverToken(spec); err != nil {
			return "", err
		}
		if _, inAddress, ok := strings.Cut(spec, "#token="); ok && token == "" {
			token = inAddress
		}
		if token == "" {
			return "", &hinted{errors.New("there is no token to log in with"), "set HANSARD_TOKEN, or HANSARD_TOKEN_FILE to a file that has it"}
		}
		if id == "" { // else it is known that the token is good
			if err := a.withStore(reading, func(s hansard.Store) error { _, err := identityOf(ctx, s); return err }); err != nil {
				return "", err
			}
		}
		if address == "" {
			address = shownStore(spec)
		}
	default:
		if address == "" {
			address = shareURL
		}
		if err := answers(ctx, address); err != nil {
			return "", &hinted{err, "start it with: " + a.again("serve") + "; or say where it is with --url"}
		}
		if token, err = a.tokenForPage(ctx, file, address); err != nil {
			return "", err
		}
	}
	return codeLink(address, token, id, openWithin)
}

// tokenForPage makes a token for a user who may write the token file anyway. It is
// withdrawn again if the server does not know it: that is then another store's.
func (a *app) tokenForPage(ctx context.Context, file, address string) (string, error) {
	tokens, err := a.openTokens(ctx, file, nil)
	if err != nil {
		return "", err
	}
	var name [4]byte
	_, _ = rand.Read(name[:]) // never fails
	made := httpd.Token{Name: "page-" + hex.EncodeToString(name[:]), Rights: httpd.Admin.String(), Expires: a.now().Add(openFor)}
	token, err := tokens.Add(made)
	if err != nil {
		return "", err
	}
	if err := logsIn(ctx, address, token); err != nil {
		return "", errors.Join(err, tokens.Remove(made.Name))
	}
	return token, nil
}

// logsIn returns an error if a code of this token would not log in. A server looks for a
// token it does not know in its file at once, when somebody logs in with a code of it.
func logsIn(ctx context.Context, address, token string) error {
	ctx, cancel := context.WithTimeout(ctx, identityWait)
	defer cancel()
	code, err := httpd.NewLoginCode(token, openWithin)
	if err != nil {
		return err
	}
	body, _ := json.Marshal(map[string]string{"code": code}) // strings: can't fail
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(address, "/")+"/v1/login", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("there is no server at %s", shownStore(address))
	}
	if err := res.Body.Close(); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return &hinted{fmt.Errorf("the server at %s does not know the tokens of this store", shownStore(address)),
			"name the server's store with --store, or its token file with --token-file; or set HANSARD_TOKEN to a token it knows, and name the server with --store"}
	}
	return nil
}

// answers returns an error if no server answers.
func answers(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, identityWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(address, "/")+"/healthz", nil)
	if err != nil {
		return &usageError{fmt.Sprintf("--url: %q is not an address", address), "write http://127.0.0.1:4267"}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("there is no server at %s", shownStore(address))
	}
	return res.Body.Close()
}

// codeLink is a link with a code made from a token.
func codeLink(address, token string, id hansard.SessionID, within time.Duration) (string, error) {
	code, err := httpd.NewLoginCode(token, within)
	if err != nil {
		return "", &hinted{err, "log in with a token that is not narrowed"}
	}
	return linkTo(address, "code", code, id), nil
}

// linkTo is an address of the page with a secret to log in. It follows the #, which
// browsers don't send to servers or write into logs.
func linkTo(address, kind, secret string, id hansard.SessionID) string {
	link := strings.TrimRight(address, "/") + "/#" + kind + "=" + secret
	if id != "" {
		link += "&session=" + url.QueryEscape(string(id))
	}
	return link
}

// openBrowser opens a link. Everybody on the machine can see a program's arguments: so
// the browser gets a file that only its user can read, and that redirects to the link.
func openBrowser(link string) error {
	dir, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, "hansard")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "open-*.html") // readable only by its owner
	if err != nil {
		return err
	}
	to := html.EscapeString(link)
	_, err = fmt.Fprintf(f, `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>Hansard</title>`+
		`<meta http-equiv="refresh" content="0;url=%s"><a href="%s">Open Hansard</a>`+"\n", to, to)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	removeOld(dir, f.Name())
	return startBrowser(f.Name())
}

// removeOld removes the files of expired links. The browser still has to read the
// current one.
func removeOld(dir, keep string) {
	old, _ := filepath.Glob(filepath.Join(dir, "open-*.html"))
	for _, name := range old {
		if info, err := os.Lstat(name); err == nil && name != keep && time.Since(info.ModTime()) > openWithin {
			_ = os.Remove(name)
		}
	}
}

func startBrowser(file string) error {
	line := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		line = []string{"open"}
	case "windows":
		line = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	if browser := os.Getenv("BROWSER"); browser != "" {
		line = []string{browser}
	}
	cmd := exec.Command(line[0], append(line[1:], file)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(browserWait): // it is running
		return nil
	}
}
