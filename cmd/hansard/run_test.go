package main

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestRunNUL: an id with a NUL byte, which no command line can hold, is refused by every command
// before anything is opened or created.
func TestRunNUL(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	for _, args := range [][]string{
		{"new", "a\x00b"}, {"append", "a\x00b", "text", "--create"}, {"show", "a\x00b"}, {"tail", "a\x00b"}, {"stat", "a\x00b"},
		{"set", "a\x00b", "--title", "t"}, {"rm", "a\x00b"}, {"verify", "a\x00b"}, {"repair", "a\x00b"},
		{"append", "demo", "text\x00", "--create", "--role", "a\x00b"}, {"new", "demo", "--title", "a\x00b"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append(args, "--store", store), strings.NewReader(""), &stdout, &stderr)
		if code != exitUsage || !strings.HasPrefix(stderr.String(), "hansard: invalid ") || strings.Contains(stderr.String(), "\x00") {
			t.Errorf("%q: exit code %d, stderr %q", args, code, stderr.String())
		}
	}
	if found, _ := filepath.Glob(store + "*"); found != nil {
		t.Errorf("bad input made %v", found)
	}
}

// allCommands are the visible commands, including subcommands such as those of token.
func allCommands(t *testing.T) []*cobra.Command {
	t.Helper()
	root := newRoot(&app{out: newOutput(io.Discard)})
	var all []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				all = append(all, sub)
				walk(sub)
			}
		}
	}
	walk(root)
	if len(all) < 20 {
		t.Fatalf("%d commands", len(all))
	}
	return append(all, root)
}

// TestHelp: every command has useful help (a sentence, details, examples), is in a group, and
// describes the values of its flags in words, not in Go types.
func TestHelp(t *testing.T) {
	for _, cmd := range allCommands(t) {
		name := cmd.CommandPath()
		if strings.HasPrefix(name, "hansard completion ") {
			continue // cobra's own
		}
		if cmd.IsAdditionalHelpTopicCommand() {
			if cmd.Short == "" || cmd.Long == "" {
				t.Errorf("%s: nothing to read", name)
			}
			continue
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s lacks a part of its help", name)
		}
		if cmd.HasParent() && cmd.Parent() == cmd.Root() && cmd.GroupID == "" {
			t.Errorf("%s is in no group", name)
		}
		for _, line := range strings.Split(cmd.Long+"\n"+cmd.Example, "\n") {
			if len([]rune(line)) > 90 {
				t.Errorf("%s: a line of the help has %d columns: %s", name, len(line), line)
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if takes, _ := pflag.UnquoteUsage(f); takes != "" && takes != "k=v" && takes != "k" && takes != strings.ToUpper(takes) {
				t.Errorf("%s --%s takes a %q: name it in its usage, between backquotes", name, f.Name, takes)
			}
		})
	}
}

// TestHelpExamples: the examples in the help are existing commands with existing flags.
func TestHelpExamples(t *testing.T) {
	for _, cmd := range allCommands(t) {
		for _, line := range strings.Split(cmd.Example, "\n") {
			for _, args := range hansardCalls(line) {
				checkCall(t, "help of "+cmd.CommandPath(), args)
			}
		}
	}
}

// hansardCalls are the calls of the command in a shell line, as far as they can be recognised
// without a shell.
func hansardCalls(line string) (calls [][]string) {
	words := shellWord.FindAllString(line, -1)
	for i, word := range words {
		if word != "hansard" || i > 0 && !strings.HasSuffix(words[i-1], "|") && !strings.Contains(" || && -- xargs ( $( <( ; & ", " "+words[i-1]+" ") &&
			!strings.Contains(words[i-1], "=") {
			continue
		}
		var args []string
		for _, arg := range words[i+1:] {
			if strings.HasPrefix(arg, "#") || strings.Contains(" | || && ; & ) > < ", " "+arg+" ") || arg[0] == '>' || arg[0] == '<' {
				break
			}
			args = append(args, strings.Trim(arg, `'"`))
		}
		calls = append(calls, args)
	}
	return calls
}

// shellWord matches a word, a quoted one, or a command separator.
var shellWord = regexp.MustCompile(`(?:"[^"]*"|'[^']*'|[^\s"'()|&;])+|\$?[<]?\(|[)|&;]+`)

// checkCall reports a command or flag that does not exist.
func checkCall(t *testing.T, where string, args []string) {
	t.Helper()
	root := newRoot(&app{out: newOutput(io.Discard)})
	cmd, rest, err := root.Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if left := cmd.Flags().Args(); err == nil && cmd.HasSubCommands() && !strings.Contains(cmd.Use, " ") {
		err = noCommand(cmd, left)
	}
	var named *pflag.ValueRequiredError // only its name is mentioned
	if err != nil && !errors.Is(err, pflag.ErrHelp) && !errors.As(err, &named) {
		t.Errorf("%s: hansard %s: %v", where, strings.Join(args, " "), err)
	}
}

func TestReflow(t *testing.T) {
	in := "One two three\nfour.\n\n  kept   as it is, however long\n\nfive\n  a  b\nsix\n"
	want := "One two\nthree\nfour.\n\n  kept   as it is, however long\n\nfive\n  a  b\nsix"
	if got := reflow(in, 9); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDidYouMean(t *testing.T) {
	names := []string{"new", "append", "show", "tail", "ls", "stat", "set", "rm", "token", "turn", "serve"}
	for word, want := range map[string]string{"lst": "ls", "shwo": "show", "tial": "tail", "Show": "show", "app": "append", "sta": "stat", "tokne": "token",
		"x": "", "": "", "frob": "", "delete": ""} {
		got := didYouMean(word, names, "", "")
		if want != "" {
			want = "did you mean " + want + "?"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{"30s": 30 * time.Second, "7d": 7 * 24 * time.Hour, "0.5d": 12 * time.Hour, "1h30m": 90 * time.Minute, "-1d": -24 * time.Hour, "0s": 0} {
		if got, err := parseDuration(in); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "5", "d", "xd", "1w", "1d2h", "1e9d", "NaNd", "Infd"} {
		if got, err := parseDuration(in); err == nil {
			t.Errorf("parseDuration(%q) = %v", in, got)
		}
	}
	for d, want := range map[time.Duration]string{30 * time.Second: "30s", 5 * time.Minute: "5m", 24 * time.Hour: "24h", 90 * time.Minute: "1h30m", 3605 * time.Second: "1h0m5s",
		1500 * time.Millisecond: "1.5s", 0: "0s"} {
		if got := humanDuration(d); got != want {
			t.Errorf("humanDuration(%v) = %q, want %q", d, got, want)
		}
	}
}
