package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/filestore"
)

// app is what the commands share: the streams, the global flags, and what is
// known so far about the run for the message of an error.
type app struct {
	stdin  io.Reader
	stdout io.Writer // without the buffer of out: for the programs we run
	out    *output
	stderr io.Writer
	now    func() time.Time
	opener func(spec string, o *filestore.Options) (hansard.Store, error)

	store        string // --store
	storeSet     bool
	json         bool // --json
	allowNetwork bool // --allow-network-fs
	lockWait     time.Duration

	session string // the session the command is about, for hints
	started bool   // the arguments were fine: what fails now is not the usage
	stop    *stopper
}

// run is the whole program: it runs one command and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, out: newOutput(stdout), stderr: stderr, now: time.Now, opener: openStore}
	return a.run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	ctx, release := catchSignals(ctx)
	defer release()
	a.stop = catchStop()
	defer a.stop.release()

	root := newRoot(a)
	root.SetArgs(append([]string{}, args...))
	root.SetOut(a.out)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && !a.started {
		err = asUsage(err)
		// Flags behind the one that was refused were not parsed any more.
		a.json = a.json || contains(args, "--json")
	}
	if flushErr := a.out.Flush(); err == nil {
		err = flushErr
	}
	return a.report(ctx, err)
}

func contains(args []string, flag string) bool {
	for _, arg := range args {
		if arg == "--" {
			return false
		}
		if arg == flag {
			return true
		}
	}
	return false
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "hansard",
		Short: "The session store for AI agents",
		Long: `Hansard keeps the sessions of AI agents: many agents, processes and servers
write one session, and nothing is lost, torn, doubled or stuck.

A session is an append-only log of events, numbered 1, 2, 3, … What an append
has acknowledged survives a power cut. Any number of processes may use one
store at once; there is no daemon to start.

The store is --store, else $HANSARD_STORE, else $XDG_DATA_HOME/hansard, else
~/.local/share/hansard: a directory, which "hansard new" makes when it is not there,
or the address of a server, http://HOST:PORT, with the token in $HANSARD_TOKEN.

Exit codes: 0 ok, 1 other, 2 usage, 3 not found, 4 conflict (expected seq, key
reused, exists), 5 held or fenced, 6 damaged; 130 and 143 after Ctrl-C and
SIGTERM; turn has its program's. With --json an error ends with one line on stderr:
{"error":…,"code":…,"exit":…,"hint":…}, and "turn", who holds it, where that is why.`,
		Example: `  hansard new demo --title "First try"
  hansard append demo "Hello" --role user
  hansard show demo
  hansard tail -f demo`,
		Version:       buildVersion().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			a.started = true
			a.storeSet = cmd.Flags().Changed("store")
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate("hansard {{.Version}}\n")
	flags := root.PersistentFlags()
	flags.StringVar(&a.store, "store", "", "the store: a `URL|PATH`; ./sessions, http://127.0.0.1:4267, postgres://user@host/database")
	flags.BoolVar(&a.json, "json", false, "print JSON, one object per line, for programs")
	flags.DurationVar(&a.lockWait, "lock-wait", 10*time.Second, "how long a write waits for a process that is stopped inside the store's write lock")
	flags.BoolVar(&a.allowNetwork, "allow-network-fs", false, "open a store on a network file system although its locks may not work there")

	root.AddCommand(
		newNew(a), newAppend(a), newShow(a), newTail(a), newStat(a), newSet(a), newLs(a), newRm(a), newTurn(a), newTurnGuard(a),
		newServe(a), newToken(a), newDemo(a), newVerify(a), newRepair(a), newBench(a), newBenchWorker(a), newVersion(a), newMigrate(a), newCopy(a),
	)
	return root
}

// noCommand refuses arguments of the bare program: they were meant to be a command.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	msg := fmt.Sprintf("there is no command %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return &usageError{msg: msg, hint: "did you mean hansard " + strings.Join(near, ", hansard ") + "?"}
	}
	return &usageError{msg: msg, hint: "hansard help lists the commands"}
}

// arguments checks the number of arguments and says what is missing by name.
func arguments(atLeast int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		use := "usage: hansard " + strings.TrimSpace(cmd.Use)
		if len(args) < atLeast {
			return &usageError{msg: fmt.Sprintf("%s needs %s", cmd.Name(), names[len(args)]), hint: use}
		}
		if len(args) > len(names) {
			return &usageError{msg: fmt.Sprintf("%s does not take %q", cmd.Name(), args[len(names)]), hint: use + "; quote an argument that has spaces"}
		}
		return nil
	}
}
