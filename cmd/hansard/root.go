package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hansard"
	"hansard/filestore"
	"hansard/search"
)

// app is what the commands share: the streams, the global flags, and what is
// known so far about the run, for error messages.
type app struct {
	stdin  io.Reader
	stdout io.Writer // unbuffered, unlike out: for the programs we run
	out    *output
	stderr io.Writer
	now    func() time.Time
	opener func(spec string, o *filestore.Options) (hansard.Store, error)

	store        string // --store
	storeSet     bool
	json         bool // --json
	allowNetwork bool // --allow-network-fs
	lockWait     time.Duration
	colour       string // --colour
	colourSet    bool
	configured   *config // nil: not read yet
	warned       bool    // warned that others can write to the store

	command string // the command that runs, and its session, for hints
	session string
	started bool         // the arguments were fine: later failures are not usage errors
	log     *slog.Logger // of serve; nil elsewhere
	stop    *stopper

	searching *search.Options // how to search, on files; nil: as usual
	index     *search.Index   // of the store that is open, on files
}

// run is the whole program: it runs one command and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, out: newOutput(stdout), stderr: stderr, now: time.Now}
	a.opener = a.openStore
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
		// Flags after the refused one were not parsed.
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
		Long: `Hansard keeps the sessions of AI agents: many agents, processes and servers write
one session, and nothing is lost, half-written, duplicated or stuck.

A session is an append-only log of events, numbered 1, 2, 3, … What an append has
acknowledged survives a power cut. Any number of processes may use one store at
once; there is no daemon to start.`,
		Example: `  hansard new demo --title "First try"
  hansard append demo "Hello" --role user
  hansard show demo
  hansard tail -f demo`,
		Version:       buildVersion().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.started = true
			a.command = cmd.Name()
			a.storeSet = cmd.Flags().Changed("store")
			a.colourSet = cmd.Flags().Changed("colour")
			return a.useColour(cmd)
		},
	}
	root.SetHelpFunc(a.printHelp)
	root.SetUsageFunc(a.printUsage)
	root.SetFlagErrorFunc(flagError)
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "color" {
			name = "colour"
		}
		return pflag.NormalizedName(name)
	})
	root.SetVersionTemplate("hansard {{.Version}}\n")
	flags := root.PersistentFlags()
	flags.StringVar(&a.store, "store", "", "the store: a `URL|PATH`, ./sessions, http://127.0.0.1:4267, postgres://user@host/database (default: see hansard config)")
	flags.StringVar(&a.colour, "colour", "", "`WHEN` to use colours: auto, always, never (default auto)")
	flags.BoolVar(&a.json, "json", false, "print JSON, one object per line, for programs")
	durationVar(flags, &a.lockWait, "lock-wait", 10*time.Second, "how long a write waits for a process that is stopped inside the store's write lock")
	flags.BoolVar(&a.allowNetwork, "allow-network-fs", false, "open a store on a network file system although its locks may not work there")

	cobra.EnableCommandSorting = false
	addCommands(root, groupSessions, "Sessions:",
		newNew(a), newAppend(a), newAttach(a), newGet(a), newShow(a), newTail(a), newLs(a), newSearch(a), newStat(a), newFork(a), newSet(a), newPin(a), newUnpin(a), newArchive(a), newUnarchive(a), newRm(a), newRedact(a), newTurn(a))
	addCommands(root, groupServer, "The server:", newServe(a), newOpen(a), newToken(a), newShare(a), newMCP(a), newDemo(a))
	addCommands(root, groupStore, "The store:", newVerify(a), newRepair(a), newStats(a), newPrune(a), newImport(a), newExport(a), newBackup(a), newRestore(a), newCopy(a), newMigrate(a), newBench(a))
	addCommands(root, groupProgram, "This program:", newConfig(a), newCompletion(root), newMan(a), newVersion(a))
	help := newHelp(root)
	help.GroupID = groupProgram
	root.SetHelpCommand(help)
	root.InitDefaultHelpCmd()
	root.AddCommand(newTopics()...)
	root.AddCommand(newTurnGuard(a), newBenchWorker(a)) // hidden
	a.completeFlags(root)
	return root
}

// arguments checks the number of arguments and says what is missing by name.
func arguments(atLeast int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		use := "usage: " + strings.TrimSuffix(cmd.UseLine(), " [flags]")
		if len(args) < atLeast {
			return &usageError{msg: fmt.Sprintf("%s needs %s", commandName(cmd), names[len(args)]), hint: use}
		}
		if len(args) > len(names) {
			return &usageError{msg: fmt.Sprintf("%s does not take %q", commandName(cmd), args[len(names)]), hint: use + "; quote an argument that has spaces"}
		}
		return nil
	}
}
