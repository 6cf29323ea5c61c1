package httpd_test

import (
	"fmt"
	"strings"
	"testing"

	"hansard"
)

// TestClaims: asked again under its name a claim is answered with the same turn;
// withdrawn under it the turn is given back, granted or not, and never granted after.
func TestClaims(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "one")
	const path = "/v1/sessions/s/turn"
	ask := func(token, claim string) (reply, hansard.Grant) {
		t.Helper()
		var turn hansard.Turn
		got := v.ask("POST", path, fmt.Sprintf(`{"claim":%q}`, claim), "Authorization", "Bearer "+v.tokens[token])
		got.into(t, &turn)
		return got, turn.Grant
	}
	withdraw := func(claim string) {
		t.Helper()
		v.must(200, "DELETE", path, fmt.Sprintf(`{"claim":%q}`, claim))
	}
	free := func(when string) {
		t.Helper()
		if got := v.must(200, "GET", path, ""); got.body != `{"turn":null}`+"\n" {
			t.Errorf("%s: %s", when, got.body)
		}
	}
	first, grant := ask("admin", "a")
	again, same := ask("admin", "a")
	if first.status != 201 || again.status != 201 || grant == "" || same != grant {
		t.Errorf("granted %s, and then %s %s", first.body, again.body, same)
	}
	if got, _ := ask("appender", "a"); got.status != 423 {
		t.Errorf("another's claim of the same name: %d %s", got.status, got.body)
	}
	if got := v.must(201, "POST", path, `{}`, "Idempotency-Key", `"a"`); !strings.Contains(got.body, string(grant)) {
		t.Errorf("its name as a key: %s", got.body)
	}
	v.must(422, "POST", path, `{"claim":"a"}`, "Idempotency-Key", "b")
	withdraw("a")
	free("a is withdrawn")
	for _, claim := range []string{"a", "b"} {
		withdraw(claim) // a for the second time, b before it was heard of
		if got, _ := ask("admin", claim); got.status != 409 || got.problem() != "fenced" {
			t.Errorf("%s after it was withdrawn: %d %s", claim, got.status, got.body)
		}
	}
	free("nothing was granted since")

	// One that waits hears that it was withdrawn, and the next in line is not held up.
	if got, _ := ask("admin", "c"); got.status != 201 {
		t.Fatalf("c: %s", got.body)
	}
	known, waiting := v.server.Claims(), make(chan reply)
	go func() {
		got, err := v.try("POST", path, `{"claim":"d","wait_ms":-1}`)
		if err != nil {
			t.Error(err)
		}
		waiting <- got
	}()
	eventually(t, "d waits", func() bool { return v.server.Claims() > known })
	withdraw("d")
	if got := <-waiting; got.status != 409 || got.problem() != "fenced" {
		t.Errorf("d, withdrawn while it waits: %d %s", got.status, got.body)
	}
	withdraw("c")
	free("all are withdrawn")
}
