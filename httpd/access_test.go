package httpd_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/httpd"
	"hansard/httpd/conversations"
	"hansard/memstore"
)

// accessCase is one request and the one status it must get.
type accessCase struct {
	name         string
	method, path string
	body         string
	headers      []string // pairs; ADMIN, READER and APPENDER stand for the tokens
	status       int
	problem      string // "" if there is none; below /v1/conversations, the code of the error
}

const wsHeaders = "Upgrade: websocket|Connection: Upgrade|Sec-WebSocket-Version: 13|Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="

// upgrade is the headers of a WebSocket handshake, plus more.
func upgrade(more ...string) []string {
	var out []string
	for _, h := range strings.Split(wsHeaders, "|") {
		name, value, _ := strings.Cut(h, ": ")
		out = append(out, name, value)
	}
	return append(out, more...)
}

const oneEvent = `{"events":[{"data":"x"}]}`

// apiRoutes is every route that needs a token, with an acceptable body.
var apiRoutes = []struct {
	method, path, body string
	right              string
	ok                 int // the status for a permitted token, in this order of calls
}{
	{"GET", "/v1/sessions", "", "read", 200},
	{"POST", "/v1/sessions", `{}`, "append", 201},
	{"GET", "/v1/sessions/s", "", "read", 200},
	{"PATCH", "/v1/sessions/s", `{"title":"t"}`, "append", 200},
	{"GET", "/v1/sessions/s/events", "", "read", 200},
	{"POST", "/v1/sessions/s/events", oneEvent, "append", 201},
	{"GET", "/v1/sessions/s/export", "", "read", 200},
	{"GET", "/v1/sessions/s/turn", "", "read", 200},
	{"POST", "/v1/sessions/s/turn", `{"steal":"test"}`, "append", 201},
	{"PUT", "/v1/sessions/s/turn", `{"grant":"1-0000000000000000"}`, "append", 409},
	{"DELETE", "/v1/sessions/s/turn", `{"grant":"1-0000000000000000"}`, "append", 409},
	{"DELETE", "/v1/sessions/gone", "", "admin", 404},
	{"GET", "/v1/sessions/s/find?q=x", "", "read", 200},
	{"GET", "/v1/search?q=x", "", "read", 200},
	{"GET", "/v1/whoami", "", "any", 200},
	{"GET", "/v1/origins", "", "read", 200},
	{"GET", "/v1/sessions/s/keys", "", "read", 200},
	{"POST", "/v1/sessions/imported/import", `{"created":"2026-01-02T03:04:05Z"}`, "admin", 204},
	{"GET", "/v1/sessions/s/verify", "", "read", 200},
	{"GET", "/v1/verify", "", "admin", 200},
	{"POST", "/v1/sessions/s/repair", "", "admin", 200},
	{"POST", "/v1/sessions/gone/redact", `{"seqs":[1]}`, "admin", 404},
	{"POST", "/v1/journal/repair", "", "admin", 200},
	{"POST", "/v1/prune", "", "admin", 200},
	{"GET", "/v1/store", "", "any", 200},
	{"DELETE", "/v1/login", "", "any", 204},
	{"GET", "/v1/tokens", "", "admin", 200},
	{"DELETE", "/v1/tokens/nobody", "", "admin", 404},
	{"GET", "/readyz", "", "any", 200},
	{"GET", "/metrics", "", "read", 200},
	{"GET", "/v1/ws", "", "any", 400},
	{"GET", "/v1/nothing", "", "any", 404},
}

func accessCases() []accessCase {
	var all []accessCase
	add := func(name, method, path, body string, status int, problem string, headers ...string) {
		all = append(all, accessCase{name, method, path, body, headers, status, problem})
	}
	// Who may do what: no token, a wrong token, each right, on every route.
	for _, r := range apiRoutes {
		add("no token", r.method, r.path, r.body, 401, "unauthorized", "Authorization", "")
		add("wrong token", r.method, r.path, r.body, 401, "unauthorized", "Authorization", "Bearer "+strings.Repeat("x", 43))
		for name, right := range map[string]string{"READER": "read", "APPENDER": "append", "ADMIN": "admin"} {
			status, problem := r.ok, ""
			switch {
			case right != "admin" && r.right != "any" && right != r.right:
				status, problem = 403, "missing-right"
			case status == 409:
				problem = "fenced"
			case status == 404 && r.path == "/v1/nothing":
				problem = "no-such-route"
			case status == 404 && strings.HasPrefix(r.path, "/v1/tokens/"):
				problem = "no-such-token"
			case status == 404:
				problem = "not-found"
			case status == 400:
				problem = "malformed"
			}
			add("right of "+right, r.method, r.path, r.body, status, problem, "Authorization", "Bearer "+name)
		}
	}
	for what, value := range map[string]string{
		"short": "Bearer x", "empty": "Bearer ", "no scheme": "ADMIN", "basic": "Basic YTpi", "other scheme": "Token ADMIN", "cut": "Bearer CUT",
		"longer": "Bearer ADMINx", "twice": "Bearer ADMIN ADMIN", "comma": "Bearer ADMIN,ADMIN", "quoted": `Bearer "ADMIN"`, "the hash": "Bearer HASH",
		"the name": "Bearer admin", "huge": "Bearer " + strings.Repeat("x", 8000), "another case": "Bearer LOWER",
	} {
		add("token "+what, "GET", "/v1/sessions", "", 401, "unauthorized", "Authorization", value)
	}
	add("scheme in another case", "GET", "/v1/sessions", "", 200, "", "Authorization", "bearer ADMIN")
	add("token in the query", "GET", "/v1/sessions?token=ADMIN", "", 401, "unauthorized", "Authorization", "")
	add("token in a cookie", "GET", "/v1/sessions", "", 401, "unauthorized", "Authorization", "", "Cookie", "token=ADMIN")
	add("token as a protocol, no upgrade", "GET", "/v1/sessions", "", 401, "unauthorized", "Authorization", "", "Sec-WebSocket-Protocol", "hansard.token.ADMIN")
	// Open to everybody.
	for _, path := range []string{"/healthz", "/version", "/openapi.json", "/"} {
		add("anybody", "GET", path, "", 200, "", "Authorization", "")
		add("anybody, wrong host", "GET", path, "", 403, "wrong-host", "Authorization", "", "Host", "evil.example")
	}
	add("anybody posts", "POST", "/healthz", `{}`, 405, "wrong-method", "Authorization", "")

	// Host: rebinding and other names.
	for _, host := range []string{"evil.example", "evil.example:4267", "localhost.evil.example", "127.0.0.1.evil.example", "evil-localhost", "10.0.0.1", "0.0.0.0",
		"192.168.1.1:80", "[::2]", "[fe80::1]:80", "localhos", "2130706433", "0x7f.1", "127.1", "xn--lcalhost-54a"} {
		add("host "+host, "GET", "/v1/sessions", "", 403, "wrong-host", "Host", host)
	}
	for _, host := range []string{"localhost", "localhost:1", "LocalHost", "localhost.", "127.0.0.1", "127.0.0.1:9", "127.7.7.7", "[::1]", "[::1]:4267", "store.example", "store.example:443"} {
		add("host "+host, "GET", "/v1/sessions", "", 200, "", "Host", host)
	}
	add("host with a user", "GET", "/v1/sessions", "", 400, "", "Host", "127.0.0.1@evil.example")
	// Origin: pages of other sites.
	for _, origin := range []string{"http://evil.example", "https://evil.example", "null", "http://localhost:1", "http://127.0.0.1", "http://HOST.evil.example",
		"http://evil.example/HOST", "file://", "http://HOST/", "http://user@HOST", "ftp://HOST", "HOST", "//HOST", "http://HOST evil", "chrome-extension://abc", "http://evil.example#http://HOST"} {
		add("origin "+origin, "GET", "/v1/sessions", "", 403, "wrong-origin", "Origin", origin)
		add("cross-site socket "+origin, "GET", "/v1/ws", "", 403, "wrong-origin", upgrade("Origin", origin)...)
	}
	add("origin of our own", "GET", "/v1/sessions", "", 200, "", "Origin", "http://HOST")
	add("origin of our own, https before us", "GET", "/v1/sessions", "", 200, "", "Origin", "https://HOST")
	add("origin of a post", "POST", "/v1/sessions", `{}`, 403, "wrong-origin", "Origin", "http://evil.example")
	add("preflight", "OPTIONS", "/v1/sessions", "", 403, "wrong-origin", "Origin", "http://evil.example", "Authorization", "", "Access-Control-Request-Method", "POST")
	for site, status := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200} {
		problem := ""
		if status != 200 {
			problem = "wrong-origin"
		}
		add("fetched from "+site, "GET", "/v1/sessions", "", status, problem, "Sec-Fetch-Site", site)
	}
	add("a link to the page", "GET", "/", "", 200, "", "Sec-Fetch-Site", "cross-site", "Authorization", "")
	// WebSocket handshakes.
	add("socket", "GET", "/v1/ws", "", 101, "", upgrade()...)
	add("socket, our own page", "GET", "/v1/ws", "", 101, "", upgrade("Origin", "http://HOST")...)
	add("socket, token as a protocol", "GET", "/v1/ws", "", 101, "", upgrade("Authorization", "", "Sec-WebSocket-Protocol", "hansard.v1, hansard.token.ADMIN")...)
	add("socket, no token", "GET", "/v1/ws", "", 401, "unauthorized", upgrade("Authorization", "")...)
	add("socket, wrong token as a protocol", "GET", "/v1/ws", "", 401, "unauthorized", upgrade("Authorization", "", "Sec-WebSocket-Protocol", "hansard.token.wrong")...)
	add("socket, empty token as a protocol", "GET", "/v1/ws", "", 401, "unauthorized", upgrade("Authorization", "", "Sec-WebSocket-Protocol", "hansard.token.")...)
	add("socket, wrong header beside a right protocol", "GET", "/v1/ws", "", 401, "unauthorized", upgrade("Authorization", "Bearer wrong", "Sec-WebSocket-Protocol", "hansard.token.ADMIN")...)
	add("socket, wrong host", "GET", "/v1/ws", "", 403, "wrong-host", upgrade("Host", "evil.example")...)
	add("socket, posted", "POST", "/v1/ws", "", 405, "wrong-method", upgrade()...)
	add("socket, old version", "GET", "/v1/ws", "", 400, "", upgrade("Sec-WebSocket-Version", "8")...)
	add("socket, no key", "GET", "/v1/ws", "", 400, "", upgrade("Sec-WebSocket-Key", "")...)

	// Ids that are paths, in every place an id can be.
	ids := map[string][]string{
		"404 no-such-route": {"..", ".", "%2e%2e", "%2E", "..%2f..", "%2fetc%2fpasswd", "a%2f..%2fb", "%00", "a%00"}, // not even valid as part of a path
		"422 invalid":       {"a%2fb", "a%5cb", "a%0d%0ab", "%c0%ae", "%ff", "~a", "-a", "a%20b", "C:%5cx", "a%3bb", "%25", "a%2500", "...", "a%22"},
		"413 too-large":     {strings.Repeat("a", 129), strings.Repeat("a", 4000)},
	}
	for want, list := range ids {
		number, problem, _ := strings.Cut(want, " ")
		status, _ := strconv.Atoi(number)
		for _, id := range list {
			for _, path := range []string{"", "/events", "/turn", "/events/stream", "/keys", "/verify"} {
				add("id "+id, "GET", "/v1/sessions/"+id+path, "", status, problem)
			}
			add("append to id "+id, "POST", "/v1/sessions/"+id+"/events", `{"events":[{"data":1}],"create":true}`, status, problem)
			add("repair id "+id, "POST", "/v1/sessions/"+id+"/repair", "", status, problem)
			add("import to id "+id, "POST", "/v1/sessions/"+id+"/import", `{"created":"2026-01-02T03:04:05Z"}`, status, problem)
		}
	}
	for _, id := range []string{`"../s"`, `"a/b"`, `""`, `"a\u0000"`, `".."`, `7`, `["s"]`, `"CON/"`} {
		add("create with id "+id, "POST", "/v1/sessions", `{"id":`+id+`}`, 422, "invalid")
	}
	for _, path := range []string{"/v1", "/v1/", "/v1/sessions/", "/v1/sessions/s/", "/v1/sessions/s/events/", "/v1/sessions/s/events/1/x", "/v1/sessions/s/events/stream/x",
		"/v1/verify/s", "/v1/journal", "/v1/journal/repair/x", "/v1/sessions/s/verify/x",
		"/v1//sessions", "//v1/sessions", "/v1/../v1/sessions", "/v1/sessions/../sessions", "/v1/./sessions", "/V1/sessions", "/v2/sessions", "/metrics/x", "/readyz/",
		"/.git/config", "/../etc/passwd", "/%2e%2e/etc/passwd", "/tokens", "/journal", "/sessions/s.jsonl", "/debug/pprof/", "/problems/fenced"} {
		problem := "no-such-route"
		if !strings.HasPrefix(path, "/v1") && !strings.Contains(path, "..") && !strings.Contains(path, "%2e") && !strings.HasPrefix(path, "//") {
			problem = "" // handled by the web page
		}
		add("path "+path, "GET", path, "", 404, problem)
	}
	for _, path := range []string{"/v1/verify?session=s", "/v1/sessions/s/verify?deep=1"} {
		add("query of "+path, "GET", path, "", 422, "invalid")
	}
	for body, want := range map[string]int{`{"force":true}`: 422, `[]`: 400, `{`: 400, `{} {}`: 400} {
		for _, path := range []string{"/v1/sessions/s/repair", "/v1/journal/repair", "/v1/prune"} {
			add("repair with "+body, "POST", path, body, want, map[int]string{400: "malformed", 422: "invalid"}[want])
		}
	}
	// Methods.
	for path, methods := range map[string]string{"/v1/sessions": "PUT PATCH DELETE OPTIONS TRACE", "/v1/sessions/s": "POST PUT", "/v1/sessions/s/events": "PUT PATCH DELETE",
		"/v1/sessions/s/events/stream": "POST DELETE", "/v1/sessions/s/turn": "PATCH", "/v1/verify": "POST PUT DELETE", "/v1/sessions/s/verify": "POST",
		"/v1/sessions/s/repair": "GET PUT", "/v1/journal/repair": "GET DELETE", "/v1/prune": "GET DELETE", "/metrics": "POST", "/readyz": "POST", "/version": "DELETE", "/openapi.json": "PUT"} {
		for _, method := range strings.Fields(methods) {
			add("method", method, path, "", 405, "wrong-method")
		}
	}
	// Bodies.
	for what, body := range map[string]string{"empty": "", "half": `{"events":[`, "array": `[]`, "text": `hello`, "two": `{} {}`, "comma": `{"events":[],}`, "no value": `{"events":}`,
		"broken data": `{"events":[{"data":{"a":}}]}`, "single quotes": `{'events':[]}`, "bare name": `{events:[]}`, "NaN": `{"events":[{"data":NaN}]}`, "byte order mark": "\ufeff" + oneEvent,
		"open string": `{"events":[{"data":"x}]}`, "events no list": `{"events":{}}`, "null": `null`} {
		add("append "+what, "POST", "/v1/sessions/s/events", body, 400, "malformed", "Content-Type", "application/json")
	}
	for what, body := range map[string]string{"nothing": `{}`, "unknown member": `{"events":[{"data":1}],"extra":1}`, "unknown member of an event": `{"events":[{"data":1,"text":"x"}]}`,
		"no data": `{"events":[{"role":"user"}]}`, "a seq": `{"events":[{"data":1,"seq":7}]}`, "expect of a string": `{"events":[{"data":1}],"expect":"1"}`, "kind of a number": `{"events":[{"data":1,"kind":1}]}`,
		"twice": `{"events":[{"data":1}],"events":[{"data":1}]}`, "negative": `{"events":[{"data":1}],"expect":-1}`, "kind of the store": `{"events":[{"data":1,"kind":"turn"}]}`, "a NUL": `{"events":[{"data":1,"role":"\u0000"}]}`} {
		add("append "+what, "POST", "/v1/sessions/s/events", body, 422, "invalid")
	}
	for path, method := range map[string]string{"/v1/sessions": "POST", "/v1/sessions/s": "PATCH", "/v1/sessions/s/turn": "POST"} {
		for body, want := range map[string]int{"null": 400, `[]`: 400, "": 400, `{} {}`: 400, `{"labels":}`: 400, `{"label":"a","label":"b"}`: 422, `{"Title":"t"}`: 422, `{"extra":1}`: 422} {
			add("body "+body, method, path, body, want, map[int]string{400: "malformed", 422: "invalid"}[want], "Content-Type", "application/json")
		}
		add("body and a parameter", method, path+"?label=x", `{}`, 422, "invalid")
	}
	add("query of the turn", "GET", "/v1/sessions/s/turn?wait_ms=1", "", 422, "invalid")
	for body, want := range map[string]int{"": 400, `[]`: 400, `{"created":"2026-01-02T03:04:05Z","events":[{"seq":1]}`: 400, `{}`: 422, `{"created":"yesterday"}`: 422, `{"created":"2026-01-02T03:04:05Z","id":"s"}`: 422,
		`{"created":"2026-01-02T03:04:05Z","keys":{}}`: 400, `{"created":"2026-01-02T03:04:05Z","keys":[{"key":"k","first":1,"last":1}]}`: 422,
		`{"created":"2026-01-02T03:04:05Z","events":[{"seq":1,"kind":"k","data":1}]}`: 422, `{"created":"2026-01-02T03:04:05Z","keys":[{"key":"` + strings.Repeat("k", 257) + `"}]}`: 413,
		`{"created":"2026-01-02T03:04:05Z","events":[{"seq":2,"time":"2026-01-02T03:04:05Z","kind":"k","data":1}]}`: 412, `{"created":"2026-01-02T03:04:06Z"}`: 409} {
		add("import "+body, "POST", "/v1/sessions/imported/import", body, want, map[int]string{400: "malformed", 422: "invalid", 413: "too-large", 412: "conflict", 409: "exists"}[want])
	}
	for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", ";", "application/octet-stream"} {
		add("media "+media, "POST", "/v1/sessions/s/events", oneEvent, 415, "wrong-media-type", "Content-Type", media)
		add("media "+media, "POST", "/v1/sessions", `{}`, 415, "wrong-media-type", "Content-Type", media)
	}
	add("compressed", "POST", "/v1/sessions", `{}`, 415, "wrong-media-type", "Content-Encoding", "gzip")
	add("media with a charset", "POST", "/v1/sessions", `{}`, 201, "", "Content-Type", "application/json; charset=utf-8")
	add("no media type", "POST", "/v1/sessions", `{}`, 201, "", "Content-Type", "")
	large := strings.Repeat("x", hansard.MaxBatchBytes)
	add("the largest batch", "POST", "/v1/sessions/s/events", `{"events":[{"data":"`+large[2:]+`"}]}`, 201, "")
	add("one byte more", "POST", "/v1/sessions/s/events", `{"events":[{"data":"`+large[1:]+`"}]}`, 413, "too-large")
	add("a body over the limit", "POST", "/v1/sessions/s/events", `{"events":[{"data":"`+large+large+large+`"}]}`, 413, "too-large")
	add("a small body over the limit", "POST", "/v1/sessions", `{"title":"`+large+`"}`, 413, "too-large")
	add("a title over the limit", "PATCH", "/v1/sessions/s", `{"title":"`+large[:5000]+`"}`, 413, "too-large")
	add("headers over the limit", "GET", "/v1/sessions", "", 431, "", "X-Large", strings.Repeat("x", 80<<10))
	// Parameters and conditions.
	for _, query := range []string{"limit=-1", "limit=x", "limit=", "after=-1", "after=1e3", "last=0", "last=x", "wait_ms=-5", "unknown=1", "after=1&after=2", "from_summary=perhaps", "limit=99999999999999999999",
		"before=x", "before=-1", "reverse=perhaps", "from_kind=note&from_summary=true", "before=5&wait_ms=5"} {
		add("query "+query, "GET", "/v1/sessions/s/events?"+query, "", 422, "invalid")
	}
	add("query not encoded", "GET", "/v1/sessions/s/events?kind=%zz", "", 400, "malformed")
	for _, query := range []string{"cursor=nonsense", "label=x", "label==x", "label=a=1&label=a=2", "since=yesterday", "limit=-1", "page=2",
		"order=size", "order=created&order=updated", "prefix=%2F", "prefix=a&prefix=b", "id=", "id=a&id=%2E%2E"} {
		add("query "+query, "GET", "/v1/sessions?"+query, "", 422, "invalid")
	}
	for _, match := range []string{"7", `W/"7"`, `"x"`, `"1", "2"`, `""`, `"-1"`, `"1`} {
		add("If-Match "+match, "POST", "/v1/sessions/s/events", oneEvent, 422, "invalid", "If-Match", match)
	}
	add("If-Match of another seq", "POST", "/v1/sessions/s/events", oneEvent, 412, "conflict", "If-Match", `"999999"`)
	add("If-Match of another seq than the body", "POST", "/v1/sessions/s/events", `{"events":[{"data":1}],"expect":1}`, 422, "invalid", "If-Match", `"2"`)
	add("If-Match of any", "POST", "/v1/sessions/s/events", oneEvent, 201, "", "If-Match", "*")
	add("If-Match of any, where there is none", "POST", "/v1/sessions/none/events", `{"events":[{"data":1}],"create":true}`, 404, "not-found", "If-Match", "*")
	add("If-Match of a deletion", "DELETE", "/v1/sessions/s", "", 422, "invalid", "If-Match", `"1"`)
	for _, key := range []string{`"`, `"a`, `"a"b"`, `""`, `"a\x"`} {
		add("key "+key, "POST", "/v1/sessions/s/events", oneEvent, 422, "invalid", "Idempotency-Key", key)
	}
	add("key over the limit", "POST", "/v1/sessions/s/events", oneEvent, 413, "too-large", "Idempotency-Key", strings.Repeat("k", 257))
	add("key of another than the body", "POST", "/v1/sessions/s/events", `{"events":[{"data":1}],"key":"a"}`, 422, "invalid", "Idempotency-Key", "b")
	add("key of a session without an id", "POST", "/v1/sessions", `{}`, 422, "invalid", "Idempotency-Key", "k")
	add("key of a session with an id", "POST", "/v1/sessions", `{"id":"keyed"}`, 201, "", "Idempotency-Key", "k")
	add("the same again", "POST", "/v1/sessions", `{"id":"keyed"}`, 409, "exists", "Idempotency-Key", "k")
	add("Last-Event-ID of a word", "GET", "/v1/sessions/s/events/stream", "", 422, "invalid", "Last-Event-ID", "x")
	// Things that do not exist.
	for _, r := range apiRoutes {
		if strings.HasPrefix(r.path, "/v1/sessions/s") {
			add("not there", r.method, "/v1/sessions/nowhere"+strings.TrimPrefix(r.path, "/v1/sessions/s"), r.body, 404, "not-found")
		}
	}
	return all
}

// TestAccess: each of these requests gets exactly its status and its problem.
func TestAccess(t *testing.T) {
	v := serve(t, &checked{Store: memstore.New()}, func(o *httpd.Options) { o.Hosts = []string{"store.example"} })
	v.must(201, "POST", "/v1/sessions", `{"id":"s"}`)
	cases := accessCases()
	if len(cases) < 150 {
		t.Fatalf("only %d cases", len(cases))
	}
	v.refuses(cases)
}

// refuses sends the requests of the cases and compares the answers.
func (v *served) refuses(cases []accessCase) {
	t := v.t
	host := strings.TrimPrefix(v.url, "http://")
	admin := v.tokens["admin"]
	fill := strings.NewReplacer("ADMIN", admin, "READER", v.tokens["reader"], "APPENDER", v.tokens["appender"], "HOST", host,
		"CUT", admin[:len(admin)-1], "LOWER", strings.ToLower(admin), "HASH", fmt.Sprintf("%x", admin))
	for _, c := range cases {
		var headers []string
		for i, h := range c.headers {
			if i%2 == 1 {
				h = fill.Replace(h)
			}
			headers = append(headers, h)
		}
		got, err := v.raw(c.method, fill.Replace(c.path), c.body, headers...)
		if err != nil {
			t.Errorf("%s: %s %.60s: %v", c.name, c.method, c.path, err)
			continue
		}
		problem := got.problem()
		if strings.HasPrefix(c.path, conversations.Prefix) {
			problem = got.openAICode(t)
		}
		if got.status != c.status || problem != c.problem {
			t.Errorf("%.80s: %s %.60s: %d %s, want %d %s: %.200s", c.name, c.method, c.path, got.status, problem, c.status, c.problem, got.body)
		}
		if c.problem != "" && strings.Contains(got.body, admin) {
			t.Errorf("%s: the problem repeats the token", c.name)
		}
	}
	t.Logf("%d cases", len(cases))
	if log := v.log.String(); strings.Contains(log, admin) || strings.Contains(log, "xxxx") {
		t.Error("the log has a token or a message in it")
	}
}

// raw sends a request exactly as written, which net/http would not do for all of them.
func (v *served) raw(method, path, body string, headers ...string) (reply, error) {
	host := strings.TrimPrefix(v.url, "http://")
	set := http.Header{"Host": {host}, "Authorization": {"Bearer " + v.tokens["admin"]}, "Connection": {"close"}, "Content-Length": {strconv.Itoa(len(body))}}
	if body != "" {
		set.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] == "" {
			set.Del(headers[i])
		} else {
			set.Set(headers[i], headers[i+1])
		}
	}
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(waitMax))
	go func() { // it may be answered before it is sent completely
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\n", method, path)
		set.Write(conn)
		io.WriteString(conn, "\r\n"+body)
	}()
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusSwitchingProtocols {
		return reply{status: res.StatusCode, header: res.Header}, nil
	}
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(text)}, err
}

// TestReadOnly: a read-only server refuses every write, whoever asks, and still serves reads.
func TestReadOnly(t *testing.T) {
	store := &checked{Store: memstore.New()}
	v := serve(t, store, func(o *httpd.Options) { o.ReadOnly = true })
	if _, err := store.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range apiRoutes {
		got := v.ask(r.method, r.path, r.body)
		if (r.right == "append" || r.right == "admin") && r.method != "GET" && !strings.HasPrefix(r.path, "/v1/tokens") {
			if got.status != 403 || got.problem() != "read-only" || !strings.Contains(got.body, "--read-only") {
				t.Errorf("%s %s: %d %s", r.method, r.path, got.status, got.problem())
			}
		} else if got.status != r.ok {
			t.Errorf("%s %s: %d, want %d", r.method, r.path, got.status, r.ok)
		}
	}
	c := v.socket("admin")
	c.refused("read-only", `{"op":"append","session":"s","batch":{"events":[{"data":1}]}}`)
	c.refused("read-only", `{"op":"acquire","session":"s"}`)
	if info, err := store.Stat(t.Context(), "s"); err != nil || info.LastSeq != 0 {
		t.Errorf("the session: %+v, %v", info, err)
	}
	for info := range store.List(t.Context(), hansard.Query{}) {
		if info.ID != "s" {
			t.Errorf("session %s was made", info.ID)
		}
	}
}

// TestNobody: a server without tokens lets nobody in.
func TestNobody(t *testing.T) {
	v := serve(t, memstore.New(), func(o *httpd.Options) { o.Access = nil })
	if got := v.ask("GET", "/v1/sessions", ""); got.status != 401 {
		t.Errorf("%d", got.status)
	}
	if got := v.ask("GET", "/healthz", ""); got.status != 200 {
		t.Errorf("healthz: %d", got.status)
	}
}
