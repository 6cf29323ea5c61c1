package httpd_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hansard/httpd"
	"hansard/internal/wire"
)

// code makes a login code for a token.
func code(t testing.TB, token string, within time.Duration) string {
	t.Helper()
	out, err := httpd.NewLoginCode(token, within)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// logIn logs in and returns the cookie as browsers send it.
func (v *served) logIn(token string) string {
	v.t.Helper()
	got := v.must(200, "POST", "/v1/login", `{"code":"`+code(v.t, v.tokens[token], time.Minute)+`"}`, "Authorization", "", "Origin", v.url)
	cookie, _, _ := strings.Cut(got.header.Get("Set-Cookie"), ";")
	return cookie
}

// by is the headers of a browser's request with a cookie.
func by(cookie string, more ...string) []string {
	return append([]string{"Authorization", "", "Cookie", cookie}, more...)
}

// status returns the status of a request whose answer may never end.
func (v *served) status(path string, headers ...string) int {
	v.t.Helper()
	req, err := http.NewRequest("GET", v.url+path, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	res, err := plain.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// TestLoginCookie: a code is good for one login, which sets a cookie that no script can read and
// no other site can use: a request that changes something must name our origin.
func TestLoginCookie(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "hello")
	once := code(t, v.tokens["admin"], time.Minute)
	got := v.must(200, "POST", "/v1/login", `{"code":"`+once+`"}`, "Authorization", "")
	set := got.header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/", "hansard_" + v.url[strings.LastIndex(v.url, ":")+1:] + "="} {
		if !strings.Contains(set, want) {
			t.Errorf("the cookie %q lacks %s", set, want)
		}
	}
	if strings.Contains(got.body, "login.") || strings.Contains(got.body, v.tokens["admin"]) || strings.Contains(set, v.tokens["admin"]) {
		t.Errorf("a script sees %s, the cookie is %s", got.body, set)
	}
	if again := v.ask("POST", "/v1/login", `{"code":"`+once+`"}`, "Authorization", ""); again.status != 401 || again.header.Get("Set-Cookie") != "" {
		t.Errorf("used twice: %d %s", again.status, again.body)
	}
	cookie, _, _ := strings.Cut(set, ";")
	v.must(200, "GET", "/v1/sessions/s", "", by(cookie)...)
	v.must(200, "GET", "/v1/sessions/s", "", by(cookie, "Sec-Fetch-Site", "same-origin")...)
	if got := v.status("/v1/sessions/s/events/stream", by(cookie, "Accept", "text/event-stream", "Sec-Fetch-Site", "same-origin")...); got != 200 {
		t.Errorf("an EventSource gets %d", got)
	}
	// Other sites, and other ports of this host, which SameSite considers the same site.
	for _, q := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
	}{
		{"no origin", "POST", "/v1/sessions/s/events", oneEvent, nil, 403},
		{"no origin", "PATCH", "/v1/sessions/s", `{"title":"x"}`, nil, 403},
		{"no origin", "DELETE", "/v1/sessions/s", "", nil, 403},
		{"no origin", "DELETE", "/v1/login", "", nil, 403},
		{"no origin", "POST", "/v1/tokens", `{"name":"x","rights":"admin"}`, nil, 403},
		{"another site", "POST", "/v1/sessions/s/events", oneEvent, []string{"Origin", "http://evil.example"}, 403},
		{"another port", "POST", "/v1/sessions/s/events", oneEvent, []string{"Origin", "http://127.0.0.1:1"}, 403},
		{"a form", "POST", "/v1/sessions/s/events", oneEvent, []string{"Origin", "null", "Content-Type", "text/plain"}, 403},
		{"a picture of another port", "GET", "/v1/sessions/s", "", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"our own page", "POST", "/v1/sessions/s/events", oneEvent, []string{"Origin", v.url}, 201},
		{"our own page", "PATCH", "/v1/sessions/s", `{"title":"x"}`, []string{"Origin", v.url, "Sec-Fetch-Site", "same-origin"}, 200},
	} {
		if got := v.ask(q.method, q.path, q.body, by(cookie, q.headers...)...); got.status != q.status || q.status == 403 && got.problem() != "wrong-origin" {
			t.Errorf("%s: %s %s: %d %s", q.name, q.method, q.path, got.status, got.body)
		}
	}
	for origin, want := range map[string]int{"": 403, "http://evil.example": 403, v.url: 101} {
		if got := v.status("/v1/ws", upgrade(by(cookie, "Origin", origin)...)...); got != want {
			t.Errorf("a socket from %q: %d, want %d", origin, got, want)
		}
	}
	// A cookie of another server on this host, or under another name.
	_, value, _ := strings.Cut(cookie, "=")
	for _, other := range []string{"hansard_1=" + value, "token=" + v.tokens["admin"], "hansard=" + value, cookie + "x"} {
		v.must(401, "GET", "/v1/sessions", "", by(other)...)
	}
	// Log out.
	if got := v.must(204, "DELETE", "/v1/login", "", by(cookie, "Origin", v.url)...); !strings.Contains(got.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("out: %v", got.header)
	}
	v.must(401, "GET", "/v1/sessions/s", "", by(cookie)...)
}

// TestLoginCodes: invalid and expired codes; and a code is not a token.
func TestLoginCodes(t *testing.T) {
	v, tokens := scoped(t)
	gone, err := tokens.Add(tokenOf("gone", httpd.Admin))
	if err != nil {
		t.Fatal(err)
	}
	left := code(t, gone, time.Minute)
	if err := tokens.Remove("gone"); err != nil {
		t.Fatal(err)
	}
	made, err := tokens.Add(tokenOf("it", httpd.Admin))
	if err != nil {
		t.Fatal(err)
	}
	good := code(t, made, time.Minute)
	noLogin, err := wire.Narrow(made, wire.Narrowing{Rights: "read", Expires: time.Now().Add(time.Minute).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]string{"none": "", "junk": "junk", "a token": made, "withdrawn": left, "a stranger's": code(t, strings.Repeat("x", 43), time.Minute), "old": code(t, made, -time.Second),
		"good for long": code(t, made, time.Hour), "no login": noLogin, "cut": good[:len(good)-1], "changed": strings.Replace(good, ".", ".A", 1)} {
		if got := v.ask("POST", "/v1/login", `{"code":"`+bad+`"}`, "Authorization", ""); got.status != 401 || got.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	}
	for body, want := range map[string]int{"": 400, `{"code":1}`: 422, `{"token":"x"}`: 422, `{"code":"` + strings.Repeat("x", 8000) + `"}`: 413} {
		if got := v.ask("POST", "/v1/login", body, "Authorization", ""); got.status != want {
			t.Errorf("%.30s: %d %s", body, got.status, got.body)
		}
	}
	v.must(401, "GET", "/v1/sessions", "", "Authorization", "Bearer "+good)
	v.must(200, "POST", "/v1/login", `{"code":"`+good+`"}`, "Authorization", "") // none of that used it up
}

// TestLoginScope: a login has the rights and the lifetime of its token, no more.
func TestLoginScope(t *testing.T) {
	v, tokens := scoped(t)
	made, err := tokens.Add(httpd.Token{Name: "it", Rights: "read", Scope: httpd.Scope{Prefix: "team:"}})
	if err != nil {
		t.Fatal(err)
	}
	v.tokens["it"] = made
	cookie := v.logIn("it")
	v.must(200, "GET", "/v1/sessions/team:in", "", by(cookie)...)
	v.must(404, "GET", "/v1/sessions/other", "", by(cookie)...)
	v.must(403, "POST", "/v1/sessions/team:in/events", oneEvent, by(cookie, "Origin", v.url)...)
	req, err := http.NewRequest("GET", v.url+"/v1/sessions/team:in/events/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Cookie", cookie)
	res, err := (&http.Client{Transport: plain.Transport}).Do(req)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	defer res.Body.Close()
	if err := tokens.Remove("it"); err != nil {
		t.Fatal(err)
	}
	ended := false
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		ended = ended || strings.Contains(lines.Text(), "unauthorized")
	}
	if !ended {
		t.Error("the stream ended without saying that the token was withdrawn")
	}
	v.must(401, "GET", "/v1/sessions/team:in", "", by(cookie)...)
}

// TestLoginsBounded: the logins of one token are limited: the oldest end.
func TestLoginsBounded(t *testing.T) {
	v := serveMemory(t)
	first := v.logIn("reader")
	other := v.logIn("admin")
	for range httpd.MaxLogins {
		v.logIn("reader")
	}
	if got := v.server.Logins(); got != httpd.MaxLogins+1 {
		t.Errorf("%d logins", got)
	}
	v.must(401, "GET", "/v1/sessions", "", by(first)...)
	v.must(200, "GET", "/v1/sessions", "", by(other)...)
}

// TestLoginsOfOthers: a token whose codes are used too often can't keep others from logging in.
func TestLoginsOfOthers(t *testing.T) {
	v := serveMemory(t)
	use := func(token string) int {
		req := httptest.NewRequest("POST", "http://localhost/v1/login", strings.NewReader(`{"code":"`+code(t, v.tokens[token], time.Minute)+`"}`))
		w := httptest.NewRecorder()
		v.server.ServeHTTP(w, req)
		return w.Code
	}
	for i := range httpd.MaxCodes {
		if got := use("reader"); got != 200 {
			t.Fatalf("login %d: %d", i, got)
		}
	}
	if got := use("reader"); got != 503 {
		t.Errorf("one login too many: %d", got)
	}
	if got := use("admin"); got != 200 {
		t.Errorf("the login of another: %d", got)
	}
}
