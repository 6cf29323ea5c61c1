package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"hansard"
)

// appendOptions are the flags of append.
type appendOptions struct {
	data, jsonl        string
	each, create       bool
	kind, role, author string
	key, event         string
	at                 string
	attach             []string
	expect             uint64
	inbox              bool
	turn               turnFlag
	grant              hansard.Grant // the grant that turn stands for
	hasData, expectSet bool
	text               *string // the TEXT argument
	stdin              bool    // TEXT is -
}

func newAppend(a *app) *cobra.Command {
	var o appendOptions
	cmd := &cobra.Command{
		Use:   "append ID [TEXT | -]",
		Short: "Append events to a session",
		Long: `Append events to a session. When it returns, they are durable: a power cut can
no longer take them away. It needs no lock and no turn: any number of processes
may append to one session at once.

The content is one of
  TEXT          a message; it is stored as a JSON string
  -             a message read from standard input, without its last line break
  --data JSON   any JSON value, kept byte for byte
  --jsonl FILE  events from a file, one a line; - reads standard input

In --jsonl an object with a "data" member is an event, with the members "kind", "role",
"author", "id", "at", "attachments", "inbox" and "data"; one with a "role" and a
"content" is a message of that role, and the whole object its data; any other JSON value
is itself the data. --kind, --role and --author apply to lines that have none. Blank
lines are skipped. A "patch" is applied with its event, which needs --each unless it is
on the last line. Other members are an error.

The output of show --json can be appended again: "seq", "time", "turn" and "by" are
ignored, and events that only the store writes (who had the turn, what a repair put
in place of lost events) are left out with a note. Such a copy may take several
appends: one ends after each patch, and where it would become too large. hansard
copy keeps seqs, times and turns as well.

All other lines are one batch, stored together or not at all, up to 16 MiB and 10,000
events. With --each every line is an append of its own, in constant memory:
what was stored before an error or Ctrl-C stays stored, and the message says how
much that is.

--id I, or the member "id" of a line, is your own name for an event: it is stored
once, however often and in whatever batches it is appended. Known ids are skipped
and the rest is stored; an id that the session has with other content is an error
(exit 4). --at T, or the member "at", is when it happened; the store also keeps its
own time, and relies on that one.

--attach FILE keeps a file beside the session and has the event name it; it may be
repeated. See hansard attach, and hansard get to get it back.

--key K makes a retry harmless: the same key with the same content is stored once,
and a retry returns the receipt of the first. With --each the key of line 7 is
K:7, so a run that broke off can simply be repeated. --expect N appends only if
the session's last seq is N (exit 4 otherwise); with --each that is for the first
line, and each of the others expects to follow the one before.

In a program that hansard turn runs, what is appended to its session is written
under its turn: once that is lost, nothing is stored any more (exit 5). --turn G
names a grant, --turn "" writes without. --inbox marks what the holder of the
turn should take up; it is accepted even while an exclusive turn keeps everything
else out.`,
		Example: `  hansard append demo "What is the capital of France?" --role user
  hansard append demo --kind tool_call --data '{"name":"search","q":"Paris"}'
  hansard append demo --create --jsonl events.jsonl --key import-2024-06-01
  agent | hansard append demo --jsonl - --each --json
  hansard append demo --jsonl mirror.jsonl     # lines with an "id" are stored once
  git diff | hansard append demo - --role tool --author git
  hansard append demo -- "-text that begins with a dash"`,
		Args:              arguments(1, "a session id", "text"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.session = args[0]
			if len(args) > 1 {
				o.text = &args[1]
			}
			o.stdin = o.text != nil && *o.text == "-"
			if err := o.defaultAuthor(a, cmd.Flags().Changed("author")); err != nil {
				return err
			}
			o.hasData, o.expectSet = cmd.Flags().Changed("data"), cmd.Flags().Changed("expect")
			var err error
			if o.grant, err = o.turn.of(a, hansard.SessionID(args[0])); err != nil {
				return err
			}
			return a.append(cmd, hansard.SessionID(args[0]), &o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.data, "data", "", "the data, any `JSON` value")
	flags.StringVar(&o.jsonl, "jsonl", "", "read events from a `FILE`, one a line; - is standard input")
	flags.BoolVar(&o.each, "each", false, "with --jsonl: one append per line instead of one batch")
	flags.BoolVar(&o.create, "create", false, "create the session (and the store) when it does not exist")
	flags.StringVar(&o.role, "role", "", "the `ROLE`: user, assistant, tool, …")
	flags.StringVar(&o.kind, "kind", "", "the `KIND`: message, tool_call, tool_result, summary or your own (default \"message\")")
	flags.StringVar(&o.author, "author", "", "the `NAME` of who or what wrote it (default $HANSARD_AUTHOR)")
	flags.StringVar(&o.key, "key", "", "an idempotency `KEY`: the same append is stored once")
	flags.StringVar(&o.event, "id", "", "your own `NAME` for the event: it is stored once")
	flags.StringVar(&o.at, "at", "", "when it happened, a `TIME` such as 2026-01-02T15:04:05Z")
	flags.StringArrayVar(&o.attach, "attach", nil, "attach a `FILE` to the event; may be repeated")
	flags.Uint64Var(&o.expect, "expect", 0, "append only if the last seq is `N`")
	flags.BoolVar(&o.inbox, "inbox", false, "leave it to the holder of the turn to take up")
	o.turn.add(a, cmd)
	cmd.SetFlagErrorFunc(behindDashes("text that begins with a dash goes after --: hansard append ID -- TEXT"))
	return cmd
}

func (a *app) append(cmd *cobra.Command, id hansard.SessionID, o *appendOptions) error {
	if err := hansard.CheckID(id); err != nil {
		return err
	}
	if err := o.checkSource(); err != nil {
		return err
	}
	if o.stdin {
		text, err := a.readText(cmd.Context())
		if err != nil {
			return err
		}
		o.text = &text
	}
	if o.jsonl == "" {
		event, err := o.single()
		if err != nil {
			return err
		}
		if len(o.attach) > 0 {
			return a.appendAttached(cmd.Context(), id, o, event)
		}
		return a.appendBatch(cmd.Context(), id, o, o.batch([]hansard.Event{event}, nil))
	}
	in, err := a.openInput(o.jsonl)
	if err != nil {
		return err
	}
	defer in.Close()
	if o.each {
		return a.appendEach(cmd.Context(), id, o, in)
	}
	return a.appendAll(cmd.Context(), id, o, in)
}

// checkSource makes sure that there is exactly one source of content.
func (o *appendOptions) checkSource() error {
	sources := 0
	for _, given := range []bool{o.text != nil, o.hasData, o.jsonl != ""} {
		if given {
			sources++
		}
	}
	switch {
	case sources == 0:
		return &usageError{"there is nothing to append", "give TEXT or --data JSON; - reads TEXT from standard input, --jsonl - one event a line"}
	case sources > 1:
		return &usageError{"TEXT, --data and --jsonl exclude each other", "give one of them"}
	case o.jsonl != "" && (o.event != "" || o.at != "" || len(o.attach) > 0):
		return &usageError{"--id, --at and --attach are for one event", `in --jsonl each line may have members "id", "at" and "attachments"`}
	case o.each && o.jsonl == "":
		return &usageError{"--each needs --jsonl", "use --jsonl FILE, or --jsonl - for standard input"}
	}
	return nil
}

// defaultAuthor sets the author of content given on the command line, if there is
// none. Events read from elsewhere have their own, or none.
func (o *appendOptions) defaultAuthor(a *app, given bool) error {
	if given || o.jsonl != "" {
		return nil
	}
	author, err := a.applySetting("author")
	o.author = author.Value
	return err
}

func (o *appendOptions) defaults() hansard.Event {
	return hansard.Event{Kind: o.kind, Role: o.role, Author: o.author, Inbox: o.inbox}
}

// single is the event of TEXT or --data.
func (o *appendOptions) single() (hansard.Event, error) {
	event := o.defaults()
	event.Data, event.ID = json.RawMessage(o.data), o.event
	if o.at != "" {
		var err error
		if event.At, err = time.Parse(time.RFC3339, o.at); err != nil {
			return event, &usageError{fmt.Sprintf("--at %s is not a time", escapeLine(o.at)), "write it as 2026-01-02T15:04:05Z or 2026-01-02T15:04:05+01:00"}
		}
	}
	if o.text != nil {
		switch {
		case !utf8.ValidString(*o.text):
			return event, &hansard.InvalidError{Field: "text", Reason: "it is not valid UTF-8"}
		case *o.text == "" && o.stdin:
			return event, &usageError{"there is no text on standard input", emptyHint}
		case *o.text == "": // usually an unset shell variable
			return event, &usageError{"the text is empty", emptyHint}
		}
		event.Data = hansard.Text(*o.text)
	}
	err := checkRecord(event, nil)
	var bad *hansard.InvalidError
	if o.hasData && errors.As(err, &bad) && bad.Field == "data" && !bad.TooLarge {
		err = &hinted{err, dataHint(o.data)}
	}
	return event, err
}

// dataHint is what to write instead of a --data that is not JSON.
func dataHint(data string) string {
	switch {
	case data == "-":
		return "to read a text from standard input: hansard append ID -; lines of JSON: --jsonl -"
	case strings.HasPrefix(data, "@"):
		return "to read lines of JSON from a file: --jsonl FILE; to keep a file as it is: --attach FILE"
	}
	return `a text needs no --data: hansard append ID TEXT; as JSON it has quotes: --data '"text"'`
}

const emptyHint = `to store an empty text all the same: --data '""'`

// readText reads the text of a message from standard input, without its last line
// break, as $(…) would. A signal ends the wait for it.
func (a *app) readText(ctx context.Context) (string, error) {
	if isTerminal(a.stdin) {
		fmt.Fprintln(a.stderr, "type the text; Ctrl-D on a line of its own ends it")
	}
	type read struct {
		text []byte
		err  error
	}
	done := make(chan read, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(a.stdin, hansard.MaxBatchBytes+1))
		done <- read{text, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return "", fmt.Errorf("reading the text: %w", r.err)
		}
		if len(r.text) > hansard.MaxBatchBytes {
			return "", &hansard.InvalidError{Field: "text", TooLarge: true, Reason: fmt.Sprintf("it is longer than %d bytes", hansard.MaxBatchBytes)}
		}
		text := bytes.TrimSuffix(r.text, []byte("\n"))
		return string(bytes.TrimSuffix(text, []byte("\r"))), nil
	case <-ctx.Done():
		return "", &interrupted{"nothing was stored"}
	}
}

func (o *appendOptions) batch(events []hansard.Event, patch *hansard.Patch) hansard.Batch {
	b := hansard.Batch{Events: events, Patch: patch, Key: o.key, Create: o.create, Turn: o.grant}
	if o.expectSet {
		b.Expect = hansard.At(hansard.Seq(o.expect))
	}
	return b
}

// access is creating only with --create: a mistyped --store must not leave a new
// store behind.
func (o *appendOptions) access() access {
	if o.create {
		return creating
	}
	return writing
}

func (a *app) openInput(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(a.stdin), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", escapeLine(name), err)
	}
	return f, nil
}
