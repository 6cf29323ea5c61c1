package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"hansard"
	"hansard/memstore"
)

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`

// answer is a line that the server wrote.
type answer struct {
	ID     *int
	Result json.RawMessage
	Error  *struct{ Code int }
}

// TestStdio: whatever the lines are, the messages among them are answered, also when they
// are the last that the client says.
func TestStdio(t *testing.T) {
	store := memstore.New()
	if _, err := store.Append(context.Background(), "s", hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", "hello")}}); err != nil {
		t.Fatal(err)
	}
	bad := []string{"nonsense", "{}", "[]", "[1]", "{", "null", `{"jsonrpc":"1.0","id":7,"method":"ping"}`, `{"jsonrpc":"2.0","id":{},"method":"ping"}`, "\x00\xff", strings.Repeat("x", 3*maxRequest)}
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read_session","arguments":{"session":"s"}}}`
	for _, input := range []string{
		hello + call,
		hello + call + "\n",
		hello + strings.Join(bad, "\n") + "\r\n\r\n \t\n" + call + "\r\n",
		hello + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}` + "\n" + `{"jsonrpc":"2.0","id":99,"result":{}}` + "\n" + call,
	} {
		var out bytes.Buffer
		if err := Serve(context.Background(), New(store, Options{}), strings.NewReader(input), &out); err != nil {
			t.Errorf("%.300q: %v", input, err)
		}
		refused, answered := 0, false
		for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			var a answer
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if a.ID == nil && a.Error != nil {
				refused++
			}
			answered = answered || a.ID != nil && *a.ID == 2 && strings.Contains(string(a.Result), "hello")
		}
		want := 0
		if strings.Contains(input, "nonsense") {
			want = len(bad)
		}
		if !answered || refused != want {
			t.Errorf("%.300q: answered %v, refused %d:\n%s", input, answered, refused, &out)
		}
	}
}

// TestStdioEnds: with the context, though the client says nothing; and when the client does
// not listen any more.
func TestStdioEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	silent, keep := io.Pipe()
	defer keep.Close()
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, New(memstore.New(), Options{}), silent, io.Discard) }()
	cancel()
	<-ended
	deaf, out := io.Pipe()
	deaf.Close()
	if err := Serve(context.Background(), New(memstore.New(), Options{}), strings.NewReader(hello), out); err != nil {
		t.Logf("who does not listen: %v", err)
	}
}
