package httpd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/httpd"
	"hansard/httpd/conversations"
	"hansard/internal/wire"
	"hansard/memstore"
)

// scoped is a server with sessions inside and outside of a scope: "team:in" has the label k=v,
// "team:out" has not, "other" has another prefix.
func scoped(t *testing.T) (*served, *httpd.Tokens) {
	t.Helper()
	tokens, err := httpd.OpenTokens(filepath.Join(t.TempDir(), "tokens"), "")
	if err != nil {
		t.Fatal(err)
	}
	v := serve(t, &checked{Store: memstore.New()}, withConversations, func(o *httpd.Options) { o.Access = tokens })
	for id, labels := range map[hansard.SessionID]map[string]string{"team:in": {"k": "v"}, "team:out": {"k": "w"}, "other": {"k": "v"}} {
		if _, err := v.store.Create(t.Context(), id, hansard.Meta{Title: "SECRET " + string(id), Labels: labels}); err != nil {
			t.Fatal(err)
		}
		if _, err := v.store.Append(t.Context(), id, hansard.Batch{Events: []hansard.Event{{ID: "first", Role: "user", Data: []byte(`{"role":"user","content":"SECRET"}`)}}, Key: "key"}); err != nil {
			t.Fatal(err)
		}
		if _, err := v.store.Attach(t.Context(), id, strings.NewReader(scopedContent)); err != nil {
			t.Fatal(err)
		}
	}
	return v, tokens
}

// scopedContent is the attachment of each of them.
const scopedContent = "SECRET picture"

// kindOfToken is one kind of token, and the sessions it is for.
type kindOfToken struct {
	name   string
	rights string
	in     map[string]bool // nil: all
	make   func(t *testing.T, tokens *httpd.Tokens) string
}

func kindsOfToken() []kindOfToken {
	var all []kindOfToken
	add := func(name, rights string, scope httpd.Scope, in ...string) {
		k := kindOfToken{name: name + " " + rights, rights: rights, make: func(t *testing.T, tokens *httpd.Tokens) string {
			token, err := tokens.Add(httpd.Token{Name: "it", Rights: rights, Scope: scope})
			if err != nil {
				t.Fatal(err)
			}
			return token
		}}
		if in != nil {
			k.in = map[string]bool{}
			for _, id := range in {
				k.in[id] = true
			}
		}
		all = append(all, k)
	}
	for _, rights := range []string{"read", "append", "read,append", "admin"} {
		add("plain", rights, httpd.Scope{})
		add("prefix", rights, httpd.Scope{Prefix: "team:"}, "team:in", "team:out", "team:none")
		add("label", rights, httpd.Scope{Labels: map[string]string{"k": "v"}}, "team:in", "other")
		add("prefix and label", rights, httpd.Scope{Prefix: "team:", Labels: map[string]string{"k": "v"}}, "team:in")
		add("session", rights, httpd.Scope{Session: "team:in"}, "team:in")
	}
	for _, rights := range []string{"read", "append", "read,append"} {
		all = append(all, kindOfToken{"narrowed " + rights, rights, map[string]bool{"team:in": true}, func(t *testing.T, tokens *httpd.Tokens) string {
			token, err := tokens.Add(httpd.Token{Name: "it", Rights: "admin", Scope: httpd.Scope{Prefix: "team:"}})
			if err != nil {
				t.Fatal(err)
			}
			token, err = wire.Narrow(token, wire.Narrowing{Session: "team:in", Rights: rights, Expires: time.Now().Add(time.Hour).Unix()})
			if err != nil {
				t.Fatal(err)
			}
			return token
		}})
	}
	return all
}

// scopedRoutes is every route about a session, with ID for it, and the right it needs.
func scopedRoutes() [][4]string {
	var all [][4]string
	for _, r := range apiRoutes {
		if path := strings.NewReplacer("/sessions/s", "/sessions/ID", "/sessions/gone", "/sessions/ID", "/sessions/imported", "/sessions/ID").Replace(r.path); strings.Contains(path, "ID") {
			all = append(all, [4]string{r.method, path, r.body, r.right})
		}
	}
	for _, r := range conversationRoutes {
		path := firstPart.ReplaceAllString(r.path, "/ID$2")
		if strings.HasPrefix(path, "/ID") && r.status != 405 && r.code != "unknown_url" {
			all = append(all, [4]string{r.method, conversations.Prefix + path, r.body, r.right})
		}
	}
	return append(all, [4]string{"GET", "/v1/sessions/ID/events?after=0&wait_ms=5", "", "read"}, [4]string{"GET", "/v1/sessions/ID/events/stream", "", "read"}, [4]string{"GET", "/v1/sessions/ID/events/first", "", "read"},
		[4]string{"GET", "/v1/sessions/ID/events?id=first", "", "read"}, [4]string{"GET", "/v1/sessions/ID/events?after_id=first", "", "read"},
		[4]string{"POST", "/v1/sessions/ID/events", `{"events":[{"data":1}],"create":true}`, "append"})
}

// may reports whether the rights include all those wanted.
func may(rights, want string) bool {
	for _, one := range strings.Split(want, ",") {
		if one != "any" && rights != "admin" && !strings.Contains(rights, one) {
			return false
		}
	}
	return true
}

var firstPart = regexp.MustCompile(`^/(s|gone)(/|$)`)

var instances = regexp.MustCompile(`urn:uuid:[0-9a-f-]+`)

// TestScopes: every route with every kind of token, on sessions inside and outside of its scope.
// A session outside is not found, with exactly the same answer as for one that never existed, and
// is not changed.
func TestScopes(t *testing.T) {
	cases := 0
	for _, kind := range kindsOfToken() {
		for _, r := range scopedRoutes() {
			v, tokens := scoped(t)
			token := kind.make(t, tokens)
			ask := func(id string) reply {
				t.Helper()
				if strings.HasSuffix(r[1], "/stream") {
					return v.head(r[1], id, token)
				}
				return v.ask(r[0], strings.ReplaceAll(r[1], "ID", id), r[2], "Authorization", "Bearer "+token)
			}
			for _, id := range []string{"team:in", "team:out", "other"} {
				cases++
				before, err := v.store.Stat(t.Context(), hansard.SessionID(id))
				if err != nil {
					t.Fatal(err)
				}
				got := ask(id)
				what := fmt.Sprintf("%s: %s %s of %s", kind.name, r[0], r[1], id)
				switch inside := kind.in == nil || kind.in[id]; {
				case !may(kind.rights, r[3]):
					if got.status != 403 {
						t.Errorf("%s without the right: %d %s", what, got.status, got.body)
					}
				case inside:
					if importing := strings.HasSuffix(r[1], "/import"); !importing && (got.status == 403 || got.status == 404 && !strings.Contains(r[1], "msg_none")) {
						t.Errorf("%s: %d %s", what, got.status, got.body)
					}
				case strings.HasSuffix(r[1], "/import") && strings.Contains(kind.name, "label"):
					if got.status != 403 {
						t.Errorf("%s: %d %s", what, got.status, got.body)
					}
				default:
					none := ask("never:was")
					same := strings.ReplaceAll(instances.ReplaceAllString(none.body, ""), "never:was", id) == instances.ReplaceAllString(got.body, "")
					if got.status != 404 && got.status != 409 || strings.Contains(got.body, "SECRET") {
						t.Errorf("%s: %d %s", what, got.status, got.body)
					}
					if !same && !strings.Contains(r[2], "create") && !strings.HasSuffix(r[1], "/import") {
						t.Errorf("%s: %d %s, and of one that never was %d %s", what, got.status, got.body, none.status, none.body)
					}
					if after, err := v.store.Stat(t.Context(), hansard.SessionID(id)); err != nil || after.LastSeq != before.LastSeq || after.Title != before.Title {
						t.Errorf("%s: it was %+v and is %+v, %v", what, before, after, err)
					}
				}
			}
			v.stop()
		}
	}
	t.Logf("%d cases", cases)
}

// labelled is a server on files with a token, "it", whose scope is a label, and a session that is
// out of that scope: "other".
func labelled(t *testing.T) *served {
	t.Helper()
	tokens, err := httpd.OpenTokens(filepath.Join(t.TempDir(), "tokens"), "")
	if err != nil {
		t.Fatal(err)
	}
	store, err := filestore.Open(filepath.Join(t.TempDir(), "store"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	v := serve(t, store, withConversations, func(o *httpd.Options) { o.Access = tokens })
	if v.tokens["it"], err = tokens.Add(httpd.Token{Name: "it", Rights: "admin", Scope: httpd.Scope{Labels: map[string]string{"k": "v"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), "other", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestScopeSameWords: a token whose scope is a label is answered about a session that others
// have as about one that never was, in the same words, although the store has words of its own.
func TestScopeSameWords(t *testing.T) {
	v := labelled(t)
	for _, r := range append(scopedRoutes(), [4]string{"GET", "/v1/search?q=x&in=ID"}, [4]string{"GET", "/ds/ID"}, [4]string{"HEAD", "/ds/ID"}, [4]string{"DELETE", "/ds/ID"}) {
		if strings.Contains(r[2], "create") || strings.HasSuffix(r[1], "/import") {
			continue // that it can't be made tells that it exists
		}
		ask := func(id string) string {
			got := v.ask(r[0], strings.ReplaceAll(r[1], "ID", id), r[2], v.as("it")...)
			return fmt.Sprint(got.status, " ", strings.ReplaceAll(instances.ReplaceAllString(got.body, ""), id, "ID"))
		}
		if got, none := ask("other"), ask("never:was"); got != none {
			t.Errorf("%s %s: %s, and of one that never was %s", r[0], r[1], got, none)
		}
	}
}

// TestScopeStreamName: the name of a session out of scope can't be used for a stream, and trying
// again would not help.
func TestScopeStreamName(t *testing.T) {
	v := labelled(t)
	v.must(201, "POST", "/v1/sessions", `{"id":"mine"}`, v.as("it")...)
	for _, with := range [][]string{nil, {"Stream-Forked-From", "/ds/mine"}} {
		if got := v.ask("PUT", "/ds/other", "", append(v.as("it"), with...)...); got.status != 409 || got.problem() != "stream-conflict" {
			t.Errorf("PUT %q: %d %s", with, got.status, got.body)
		}
	}
}

// TestScopeMetadata: replacing a conversation's metadata keeps the labels of the token's scope;
// changing them is refused, which is not an error of the server.
func TestScopeMetadata(t *testing.T) {
	v := labelled(t)
	v.must(201, "POST", "/v1/sessions", `{"id":"mine"}`, v.as("it")...)
	v.must(200, "POST", conversations.Prefix+"/mine", `{"metadata":{"a":"b","c":"d"}}`, v.as("it")...)
	if got := v.must(200, "POST", conversations.Prefix+"/mine", `{"metadata":{"a":"b"}}`, v.as("it")...); !strings.Contains(got.body, `"metadata":{"a":"b","k":"v"}`) {
		t.Errorf("replaced metadata: %s", got.body)
	}
	if got := v.ask("POST", conversations.Prefix+"/mine", `{"metadata":{"k":"w"}}`, v.as("it")...); got.status != 403 || got.openAICode(t) != "missing_right" {
		t.Errorf("metadata that would change the label of the scope: %d %s", got.status, got.body)
	}
}

// TestScopeNames: what a token with a prefix creates without a name is in its scope, on every
// route; a retry of a conversation under its key finds it.
func TestScopeNames(t *testing.T) {
	v, tokens := scoped(t)
	made, err := tokens.Add(httpd.Token{Name: "it", Rights: "read,append", Scope: httpd.Scope{Prefix: "team:"}})
	if err != nil {
		t.Fatal(err)
	}
	v.tokens["it"] = made
	key := []string{"Idempotency-Key", "k"}
	var ids []string
	for _, c := range []struct {
		status     int
		path, body string
		headers    []string
	}{
		{201, "/v1/sessions", `{"title":"new"}`, nil},
		{201, "/v1/sessions/team:in/fork", `{}`, nil},
		{200, conversations.Prefix, `{}`, nil},
		{200, conversations.Prefix, `{"metadata":{"a":"b"}}`, key},
		{200, conversations.Prefix, `{"metadata":{"a":"b"}}`, key},
	} {
		var session struct{ ID string }
		v.must(c.status, "POST", c.path, c.body, append(v.as("it"), c.headers...)...).into(t, &session)
		if !strings.HasPrefix(session.ID, "team:") {
			t.Errorf("%s %s made %s", c.path, c.body, session.ID)
		}
		v.must(200, "GET", "/v1/sessions/"+session.ID, "", v.as("it")...)
		ids = append(ids, session.ID)
	}
	if ids[3] != ids[4] || ids[2] == ids[3] {
		t.Errorf("the conversations are %q", ids[2:])
	}
}

// head requests a stream and does not read it.
func (v *served) head(path, id, token string) reply {
	v.t.Helper()
	req, err := http.NewRequest("GET", v.url+strings.ReplaceAll(path, "ID", id), nil)
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := plain.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	got := reply{status: res.StatusCode, header: res.Header}
	if res.StatusCode != 200 {
		text := make([]byte, 4096)
		n, _ := res.Body.Read(text)
		got.body = string(text[:n])
	}
	return got
}

// TestScopeLists: lists, whole-store routes and sockets show only what is in scope; new sessions
// are made in it, and can't be moved out of it.
func TestScopeLists(t *testing.T) {
	v, tokens := scoped(t)
	made, err := tokens.Add(httpd.Token{Name: "it", Rights: "admin", Scope: httpd.Scope{Prefix: "team:", Labels: map[string]string{"k": "v"}}})
	if err != nil {
		t.Fatal(err)
	}
	v.tokens["it"] = made
	outside := map[string]bool{"/v1/sessions?label=k=w": true, "/v1/sessions?prefix=o": true, "/v1/sessions?id=other": true, "/v1/sessions?prefix=team:o": true}
	for _, path := range []string{"/v1/sessions", "/v1/sessions?limit=1", "/v1/sessions?q=e", "/v1/sessions?label=k=w", "/v1/origins",
		"/v1/sessions?order=created", "/v1/sessions?prefix=t", "/v1/sessions?prefix=team:i", "/v1/sessions?id=team:in&id=team:out&id=other", "/v1/sessions?limit=0",
		"/v1/sessions?prefix=o", "/v1/sessions?id=other", "/v1/sessions?prefix=team:o"} {
		for _, accept := range []string{"application/json", "application/x-ndjson"} {
			got := v.must(200, "GET", path, "", append(v.as("it"), "Accept", accept)...)
			if strings.Contains(got.body, "other") || strings.Contains(got.body, "team:out") || !outside[path] && !strings.Contains(got.body, "team:in") {
				t.Errorf("%s: %s", path, got.body)
			}
		}
	}
	for _, q := range [][2]string{{"GET", "/metrics"}, {"GET", "/v1/verify"}, {"POST", "/v1/journal/repair"}, {"POST", "/v1/prune"}, {"GET", "/v1/tokens"}, {"DELETE", "/v1/tokens/it"}} {
		if got := v.ask(q[0], q[1], "", v.as("it")...); got.status != 403 || got.problem() != "missing-right" {
			t.Errorf("%s %s: %d %s", q[0], q[1], got.status, got.body)
		}
	}
	if got := v.ask("POST", "/v1/tokens", `{"name":"more","rights":"admin"}`, v.as("it")...); got.status != 403 {
		t.Errorf("it made a token: %d %s", got.status, got.body)
	}
	c := v.socket("it")
	for _, id := range []string{"team:out", "other", "never:was"} {
		for _, op := range []string{"follow", "append", "acquire", "hold", "release"} {
			c.refused("not-found", `{"op":%q,"session":%q,"grant":"1-0123456789abcdef","batch":{"events":[{"data":1}]}}`, op, id)
		}
	}
	// New ones.
	v.must(201, "POST", "/v1/sessions", `{"id":"team:new","labels":{"x":"y"}}`, v.as("it")...)
	v.must(201, "POST", "/v1/sessions/team:made/events", `{"events":[{"data":1}],"create":true}`, v.as("it")...)
	v.must(404, "POST", "/v1/sessions", `{"id":"mine:new"}`, v.as("it")...)
	v.must(422, "POST", "/v1/sessions", `{"id":"team:odd","labels":{"k":"w"}}`, v.as("it")...)
	for _, id := range []hansard.SessionID{"team:new", "team:made"} {
		if info, err := v.store.Stat(t.Context(), id); err != nil || info.Labels["k"] != "v" {
			t.Errorf("%s is %+v, %v", id, info, err)
		}
	}
	for _, patch := range []string{`{"labels":{"k":null}}`, `{"labels":{"k":"w"}}`} {
		if got := v.ask("PATCH", "/v1/sessions/team:new", patch, v.as("it")...); got.status != 403 {
			t.Errorf("%s: %d %s", patch, got.status, got.body)
		}
	}
	v.must(200, "PATCH", "/v1/sessions/team:new", `{"labels":{"k":"v","z":"1"}}`, v.as("it")...)
	// Removing the label of a session ends it for its followers.
	c.send(`{"op":"follow","session":"team:in","after":1}`)
	c.next("following")
	gone := "w"
	if _, err := v.store.Append(t.Context(), "team:in", hansard.Batch{Patch: &hansard.Patch{Labels: map[string]*string{"k": &gone}}}); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := c.read()
		if err != nil {
			t.Fatal(err)
		}
		if m.Op == "ended" {
			if m.Problem.Type != "/problems/not-found" {
				t.Errorf("it ended with %+v", m)
			}
			break
		}
	}
}

// TestExpiry: an expired token is invalid, whatever it had in flight, and a narrowed token lasts
// no longer and allows no more than the one it was made from.
func TestExpiry(t *testing.T) {
	v, tokens := scoped(t)
	made, err := tokens.Add(httpd.Token{Name: "it", Rights: "read", Expires: time.Now().Add(1500 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	v.tokens["it"], v.tokens["reader"] = made, made
	narrow := func(n wire.Narrowing) string {
		t.Helper()
		out, err := wire.Narrow(made, n)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	far := time.Now().Add(time.Hour).Unix()
	longer := narrow(wire.Narrowing{Rights: "read,append", Expires: far})
	if got := v.ask("POST", "/v1/sessions/other/events", oneEvent, "Authorization", "Bearer "+longer); got.status != 403 {
		t.Errorf("a narrowed token that says it may append: %d %s", got.status, got.body)
	}
	for _, none := range []string{narrow(wire.Narrowing{Rights: "admin", Expires: far}), narrow(wire.Narrowing{Rights: "append", Expires: far}),
		narrow(wire.Narrowing{Rights: "read", Expires: time.Now().Unix() - 1}), narrow(wire.Narrowing{Rights: "read", Expires: far, Login: "x"})} {
		if got := v.ask("GET", "/v1/sessions", "", "Authorization", "Bearer "+none); got.status != 401 {
			t.Errorf("%.60s: %d", none, got.status)
		}
	}
	c := v.stream("other", "", "")
	for _, token := range []string{made, longer} {
		eventually(t, "it expires", func() bool { return v.ask("GET", "/v1/sessions", "", "Authorization", "Bearer "+token).status == 401 })
	}
	for {
		e, err := c.next()
		if err != nil || e.event == "problem" {
			if err != nil || !strings.Contains(e.data, "unauthorized") {
				t.Errorf("%+v, %v", e, err)
			}
			break
		}
	}
	if _, err := tokens.Add(httpd.Token{Name: "late", Rights: "read", Expires: time.Now().Add(-time.Second)}); err == nil {
		t.Error("one was made that has expired")
	}
}

// TestRate: a token has a rate limit, for requests and for messages; others are counted
// separately.
func TestRate(t *testing.T) {
	v, tokens := scoped(t)
	var err error
	if v.tokens["it"], err = tokens.Add(httpd.Token{Name: "it", Rights: "admin", Rate: 3.0 / 3600}); err != nil { // one, and then one every 20 minutes
		t.Fatal(err)
	}
	if v.tokens["admin"], err = tokens.Add(tokenOf("admin", httpd.Admin)); err != nil {
		t.Fatal(err)
	}
	v.must(200, "GET", "/v1/sessions", "", v.as("it")...)
	for range 5 {
		got := v.ask("GET", "/v1/sessions", "", v.as("it")...)
		if got.status != 429 || got.problem() != "too-many-requests" || got.header.Get("Retry-After") == "" {
			t.Fatalf("%d %s", got.status, got.body)
		}
		v.must(200, "GET", "/v1/sessions", "")
	}
	if got := v.ask("GET", conversations.Prefix+"/other", "", v.as("it")...); got.status != 429 || got.openAICode(t) != "rate_limit_exceeded" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if v.tokens["talker"], err = tokens.Add(httpd.Token{Name: "talker", Rights: "admin", Rate: 3.0}); err != nil {
		t.Fatal(err)
	}
	c := v.socket("talker")
	refused := 0
	for range 50 {
		c.send(`{"op":"ping"}`)
		if m, err := c.read(); err != nil {
			t.Fatal(err)
		} else if m.Op == "problem" {
			refused++
		}
	}
	if refused == 0 {
		t.Error("50 messages at once were all answered")
	}
}

// addLabelled adds a token, "it", whose scope is a label.
func (v *served) addLabelled() {
	v.t.Helper()
	var got struct{ Token string }
	v.must(201, "POST", "/v1/tokens", `{"name":"it","rights":"admin","labels":{"k":"v"}}`).into(v.t, &got)
	v.tokens["it"] = got.Token
}

// waitingClaims is a store whose claims that wait are decided when a test says so.
type waitingClaims struct {
	hansard.Store
	begun, decide chan struct{}
}

func (s *waitingClaims) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	if c.Wait != 0 {
		s.begun <- struct{}{}
		<-s.decide
		c.Wait = 0
	}
	return s.Store.Acquire(ctx, id, c)
}

// TestScopeChangesWhileWaiting: a session whose label changes while a claim to its turn waits is
// not found, and its turn is free, or still with whoever has it.
func TestScopeChangesWhileWaiting(t *testing.T) {
	for _, held := range []bool{false, true} {
		store := &waitingClaims{Store: memstore.New(), begun: make(chan struct{}), decide: make(chan struct{})}
		v := serve(t, store)
		v.addLabelled()
		v.must(201, "POST", "/v1/sessions", `{"id":"s"}`, v.as("it")...)
		answer := make(chan reply, 1)
		go func() {
			got, err := v.try("POST", "/v1/sessions/s/turn", `{"wait_ms":60000}`, v.as("it")...)
			if err != nil {
				t.Error(err)
			}
			answer <- got
		}()
		<-store.begun
		v.must(200, "PATCH", "/v1/sessions/s", `{"labels":{"k":null}}`)
		if held {
			v.must(201, "POST", "/v1/sessions/s/turn", `{"label":"SECRET"}`)
		}
		store.decide <- struct{}{}
		if got := <-answer; got.problem() != "not-found" || strings.Contains(got.body, "SECRET") {
			t.Errorf("held %v: %d %s", held, got.status, got.body)
		}
		if turn, err := store.Turn(t.Context(), "s"); err != nil || (turn != nil) != held {
			t.Errorf("held %v: the turn is %v, %v", held, turn, err)
		}
		v.stop()
	}
}

// deafWatcher is a store on which waiting fails for those that wait without a deadline: not for
// what reads the events of a followed session, but for what watches over its labels.
type deafWatcher struct{ hansard.Store }

func (s deafWatcher) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	if _, limited := ctx.Deadline(); !limited {
		return errors.New("too many open files")
	}
	return s.Store.Wait(ctx, id, after)
}

// TestScopeWatcherFails: a session that leaves the scope is followed no longer, although waiting
// for that has failed.
func TestScopeWatcherFails(t *testing.T) {
	v := serve(t, deafWatcher{memstore.New()})
	v.addLabelled()
	v.tokens["reader"] = v.tokens["it"]
	v.must(201, "POST", "/v1/sessions", `{"id":"s"}`, v.as("it")...)
	c := v.stream("s", "", "0")
	v.must(200, "PATCH", "/v1/sessions/s", `{"labels":{"k":null}}`)
	for {
		e, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.event == "problem" {
			if !strings.Contains(e.data, "/problems/not-found") {
				t.Errorf("it ends with %s", e.data)
			}
			return
		}
	}
}

// busyWith is a store that is too busy to describe one session.
type busyWith struct {
	*memstore.Store
	id hansard.SessionID
}

func (s busyWith) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	if id == s.id {
		return hansard.Info{}, &hansard.BusyError{}
	}
	return s.Store.Stat(ctx, id)
}

// TestScopeOriginsFail: a list of the sessions to copy does not leave one out in silence because
// the store could not tell whether it is in the scope of a label.
func TestScopeOriginsFail(t *testing.T) {
	v := serve(t, busyWith{memstore.New(), "s2"})
	v.addLabelled()
	for _, id := range []string{"s1", "s2", "s3"} {
		v.must(201, "POST", "/v1/sessions", `{"id":"`+id+`"}`, v.as("it")...)
	}
	if got := v.ask("GET", "/v1/origins", "", v.as("it")...); !strings.Contains(got.body, `"s1"`) || !strings.Contains(got.body, `{"problem":{"type":"/problems/busy"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestScopeChangesWhileUploading: nothing is attached to a session that leaves the scope before
// all has arrived.
func TestScopeChangesWhileUploading(t *testing.T) {
	v := serveMemory(t)
	v.addLabelled()
	v.must(201, "POST", "/v1/sessions", `{"id":"s"}`, v.as("it")...)
	arrives, sends := io.Pipe()
	req, err := http.NewRequest("POST", v.url+"/v1/sessions/s/attachments", arrives)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+v.tokens["it"])
	answer := make(chan *http.Response, 1)
	go func() {
		res, err := plain.Do(req)
		if err != nil {
			t.Error(err)
		}
		answer <- res
	}()
	io.WriteString(sends, "begun")
	eventually(t, "it is under way", func() bool { return v.server.Busy() == 1 })
	v.must(200, "PATCH", "/v1/sessions/s", `{"labels":{"k":null}}`)
	sends.Close()
	if res := <-answer; res == nil || res.StatusCode != 404 {
		t.Errorf("the answer is %+v", res)
	} else {
		res.Body.Close()
	}
	if got := v.must(200, "GET", "/v1/sessions/s/attachments", "").body; got != `{"attachments":[]}`+"\n" {
		t.Errorf("there is %s", got)
	}
}

// TestScopeRefusedAnew: a batch that would create a session in a label's scope, and is refused,
// leaves none behind; it is refused as it is for any other token.
func TestScopeRefusedAnew(t *testing.T) {
	v := serveMemory(t)
	v.addLabelled()
	for what, body := range map[string]string{
		"expects more":          `{"events":[{"data":1}],"create":true,"expect":5}`,
		"under a turn":          `{"events":[{"data":1}],"create":true,"turn":"1-00"}`,
		"names an attachment":   `{"events":[{"data":1,"attachments":[{"digest":"sha256:` + strings.Repeat("0", 64) + `","size":1}]}],"create":true}`,
		"has an id twice":       `{"events":[{"id":"a","data":1},{"id":"a","data":2}],"create":true}`,
		"tests the state":       `{"events":[{"data":1}],"create":true,"patch":{"state_ops":[{"op":"test","path":"/x","value":1}]}}`,
		"has too large a state": `{"events":[{"data":1}],"create":true,"meta":{"state":{"a":"` + strings.Repeat("x", 600<<10) + `"}},"patch":{"state":{"b":"` + strings.Repeat("x", 600<<10) + `"}}}`,
		"changes the label":     `{"events":[{"data":1}],"create":true,"patch":{"labels":{"k":"w"}}}`,
	} {
		it := v.ask("POST", "/v1/sessions/s/events", body, v.as("it")...)
		if info, err := v.store.Stat(t.Context(), "s"); err == nil {
			t.Fatalf("%s: %d %s, and there is %+v", what, it.status, it.body, info)
		}
		if what == "changes the label" {
			continue
		}
		admin := v.ask("POST", "/v1/sessions/s/events", body)
		if got, want := instances.ReplaceAllString(it.body, ""), instances.ReplaceAllString(admin.body, ""); it.status < 400 || it.status != admin.status || got != want {
			t.Errorf("%s: %d %s, and as an admin %d %s", what, it.status, got, admin.status, want)
		}
	}
	v.must(201, "POST", "/v1/sessions/s/events", `{"events":[{"data":1}],"create":true,"expect":0,"patch":{"state":{"a":1}}}`, v.as("it")...)
}
