package httpd_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"hansard/httpd"
	"hansard/httpd/conversations"
	"hansard/memstore"
)

func auditLines(t *testing.T, log *buffer) []httpd.Audited {
	t.Helper()
	var out []httpd.Audited
	for _, text := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		var line httpd.Audited
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		out = append(out, line)
	}
	return out
}

// TestAudit: denials and admin actions are logged, with who, what and when; nothing else is, and
// no content.
func TestAudit(t *testing.T) {
	log := new(buffer)
	v := serve(t, &checked{Store: memstore.New()}, withConversations, func(o *httpd.Options) { o.Audit = log })
	v.say("s", "SECRET")
	v.must(200, "GET", "/v1/sessions/s/events", "")
	v.must(404, "GET", "/v1/sessions/t", "")
	v.must(201, "POST", "/v1/sessions/s/events", oneEvent, v.as("appender")...)
	if log.String() != "" {
		t.Errorf("what everybody may do is noted: %s", log)
	}
	for _, q := range []struct {
		token, method, path, body, want string
	}{
		{"", "GET", "/v1/sessions/s", "", "GET /v1/sessions/{id} s 401 unauthorized by "},
		{"SECRET", "POST", "/v1/sessions/s/events", `{"events":[{"data":"SECRET"}]}`, "POST /v1/sessions/{id}/events s 401 unauthorized by "},
		{"reader", "POST", "/v1/sessions/s/events", `{"events":[{"data":"SECRET"}]}`, "POST /v1/sessions/{id}/events s 403 missing-right by reader"},
		{"appender", "GET", "/v1/sessions/s/events?kind=SECRET", "", "GET /v1/sessions/{id}/events s 403 missing-right by appender"},
		{"appender", "DELETE", conversations.Prefix + "/s", "", "DELETE /v1/conversations s 403 missing-right by appender"},
		{"reader", "BREW", "/v1/SECRET", "", ""},
		{"", "BREW", "/v1/SECRET", "", "other none  401 unauthorized by "},
		{"", "GET", "/v1/sessions/SECRET%20SECRET/events", "", "GET /v1/sessions/{id}/events  401 unauthorized by "},
		{"admin", "DELETE", "/v1/sessions/nope", "", "DELETE /v1/sessions/{id} nope 404 not-found by admin"},
		{"admin", "POST", "/v1/sessions/s/repair", "", "POST /v1/sessions/{id}/repair s 200  by admin"},
		{"admin", "GET", "/v1/verify", "", "GET /v1/verify  200  by admin"},
		{"admin", "DELETE", "/v1/sessions/s", "", "DELETE /v1/sessions/{id} s 204  by admin"},
	} {
		before := log.String()
		token := v.tokens[q.token]
		if token == "" && q.token != "" {
			token = q.token
		}
		header := "Bearer " + token
		if token == "" {
			header = ""
		}
		v.ask(q.method, q.path, q.body, "Authorization", header)
		var got string
		eventually(t, "it is noted", func() bool { got = strings.TrimPrefix(log.String(), before); return got != "" || q.want == "" })
		if q.want == "" {
			continue
		}
		var line httpd.Audited
		if err := json.Unmarshal([]byte(got), &line); err != nil {
			t.Fatalf("%s %s: %q: %v", q.method, q.path, got, err)
		}
		text := fmt.Sprintf("%s %s %s %d %s by %s", line.Method, line.Route, line.Session, line.Status, line.Problem, line.Token)
		if text != q.want || line.Request == "" || line.Remote == "" || time.Since(line.Time) > time.Hour {
			t.Errorf("%s %s as %q: %s, want %s", q.method, q.path, q.token, got, q.want)
		}
	}
	c := v.socket("reader")
	c.refused("missing-right", `{"op":"append","session":"s","batch":{"events":[{"data":"SECRET"}]}}`)
	eventually(t, "the message is noted", func() bool {
		return strings.Contains(log.String(), `"method":"append","route":"/v1/ws","session":"s","status":403`)
	})
	for _, secret := range append([]string{"SECRET"}, v.tokens["admin"], v.tokens["reader"]) {
		if strings.Contains(log.String(), secret) {
			t.Errorf("there is %q in it: %s", secret, log)
		}
	}
}

// TestAuditFlood: a flood of denials is counted instead of logged one by one; admin actions are
// always logged.
func TestAuditFlood(t *testing.T) {
	log := new(buffer)
	v := serve(t, memstore.New(), func(o *httpd.Options) { o.Audit = log })
	const denials = 1000
	began := time.Now()
	c := v.socket("reader")
	for i := range denials {
		c.send(`{"op":"append","session":"s%d"}`, i)
		c.next("problem")
	}
	seconds := int(time.Since(began).Seconds()) + 2
	v.must(404, "DELETE", "/v1/sessions/nope", "")
	eventually(t, "it is noted", func() bool { return strings.Contains(log.String(), `"token":"admin"`) })
	noted, dropped := 0, 0
	for _, line := range auditLines(t, log) {
		if line.Token == "reader" {
			noted++
		}
		dropped += line.Dropped
	}
	if noted > 100*seconds || noted+dropped != denials {
		t.Errorf("%d denials were noted in %d s and %d were not, of %d", noted, seconds, dropped, denials)
	}
}
