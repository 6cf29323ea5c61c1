package transcript_test

import (
	"fmt"

	"hansard"
	"hansard/transcript"
)

func ExampleOf() {
	e := hansard.Event{Kind: "message", Role: "assistant", Data: []byte(`[
		{"type":"text","text":"I look at the loop."},
		{"type":"tool_use","id":"t1","name":"read_file","input":{"path":"parse.go"}}]`)}
	reading := transcript.Of(e)
	fmt.Println(reading.Voice)
	for _, p := range reading.Parts {
		fmt.Println(p.Type, p.Name, p.Line(80))
	}
	// Output:
	// agent
	// text  I look at the loop.
	// call read_file parse.go
}
