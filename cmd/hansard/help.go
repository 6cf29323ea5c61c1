package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"
)

// The groups of commands in the help.
const (
	groupSessions = "sessions"
	groupServer   = "server"
	groupStore    = "store"
	groupProgram  = "program"
)

// addCommands adds the commands of a group, in the order people will want them.
func addCommands(root *cobra.Command, id, title string, cmds ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range cmds {
		cmd.GroupID = id
	}
	root.AddCommand(cmds...)
}

// helpMax is the width of help without a terminal, or on a very wide one.
const helpMax = 80

func (a *app) helpWidth() int {
	if a.out.width > 0 {
		return min(helpMax, a.out.width)
	}
	return helpMax
}

// printHelp is what --help prints: what the command does, then its usage.
func (a *app) printHelp(cmd *cobra.Command, _ []string) {
	_ = a.useColour(cmd) // a broken configuration must not prevent help
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	fmt.Fprintln(a.out, reflow(text, a.helpWidth()))
	if cmd.Runnable() || cmd.HasSubCommands() {
		fmt.Fprintln(a.out)
		_ = a.printUsage(cmd) // the first error sticks, and Flush returns it
	}
}

// reflow breaks paragraphs at a width. Indented lines, such as those of a list,
// are kept.
func reflow(text string, width int) string {
	var b strings.Builder
	column := 0
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line = strings.TrimRight(line, "\n")
		if line == "" || line[0] == ' ' {
			if column > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(line + "\n")
			column = 0
			continue
		}
		for _, word := range strings.Fields(line) {
			n := runewidth.StringWidth(word)
			switch {
			case column == 0:
			case column+1+n > width:
				b.WriteByte('\n')
				column = 0
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += n
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// printUsage prints what follows a command's description.
func (a *app) printUsage(cmd *cobra.Command) error {
	var b bytes.Buffer
	section := func(title string) { fmt.Fprintf(&b, "\n%s\n", a.out.paint(bold, title)) }
	section("Usage:")
	if cmd.Runnable() && !cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	} else {
		fmt.Fprintf(&b, "  %s COMMAND\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		section("Examples:")
		fmt.Fprintln(&b, cmd.Example)
	}
	for _, group := range cmd.Groups() {
		section(group.Title)
		listCommands(&b, cmd, func(sub *cobra.Command) bool { return sub.GroupID == group.ID && !sub.Hidden })
	}
	if cmd.HasAvailableSubCommands() && len(cmd.Groups()) == 0 {
		section("Commands:")
		listCommands(&b, cmd, (*cobra.Command).IsAvailableCommand)
	}
	if cmd.HasHelpSubCommands() {
		section("More to read:")
		listCommands(&b, cmd, (*cobra.Command).IsAdditionalHelpTopicCommand)
	}
	if cmd.HasAvailableLocalFlags() {
		section("Flags:")
		b.WriteString(cmd.LocalFlags().FlagUsagesWrapped(a.helpWidth()))
	}
	if cmd.HasAvailableInheritedFlags() {
		section("Flags of all commands:")
		b.WriteString(cmd.InheritedFlags().FlagUsagesWrapped(a.helpWidth()))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nRun %s for more about a command.\n", strings.TrimSpace("hansard help "+commandName(cmd))+" COMMAND")
	}
	_, err := cmd.OutOrStdout().Write(bytes.TrimPrefix(b.Bytes(), []byte("\n")))
	return err
}

// listCommands lists those that are wanted, in the order they were added.
func listCommands(w io.Writer, cmd *cobra.Command, want func(*cobra.Command) bool) {
	width := 0
	for _, sub := range cmd.Commands() {
		width = max(width, len(sub.Name()))
	}
	for _, sub := range cmd.Commands() {
		if want(sub) {
			fmt.Fprintf(w, "  %-*s  %s\n", width, sub.Name(), sub.Short)
		}
	}
}

// newHelp is the help command: an unknown topic is an error.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		Long: `Show the help of a command, or of a topic that is listed under "More to read".
A command prints the same with --help.`,
		Example: `  hansard help append
  hansard help token add
  hansard help exit-codes`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if cmd, rest, err := root.Find(args); err == nil && len(rest) == 0 {
				for _, sub := range cmd.Commands() {
					if !sub.Hidden && strings.HasPrefix(sub.Name(), prefix) {
						names = append(names, sub.Name()+"\t"+sub.Short)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return err // from noCommand
			}
			if len(rest) > 0 {
				return noCommand(cmd, rest)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// noCommand refuses arguments of a command that has subcommands: a subcommand was
// meant.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	help := strings.TrimSpace("hansard help " + commandName(cmd))
	if cmd.HasSubCommands() {
		help += " lists the commands"
	}
	wrong := strings.TrimSpace(commandName(cmd) + " " + args[0])
	return &usageError{fmt.Sprintf("there is no command %q", wrong), didYouMean(args[0], names, cmd.CommandPath()+" ", help)}
}

// commandName is "token add", and nothing for the program itself.
func commandName(cmd *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()), " ")
}

// newTopics are help pages that are not about a command.
func newTopics() []*cobra.Command {
	return []*cobra.Command{
		{
			Use:   "exit-codes",
			Short: "What the exit codes mean",
			Long: `The exit codes of all commands:

  0    success
  1    any other failure: the disk, the network, missing rights
  2    usage: the command line is wrong; nothing was done
  3    not found: no such session, token or link, or the session was deleted, or
       there is no store
  4    conflict: another last seq than expected, a test of the state that failed,
       a key used for something else, an id or the name of a token that is taken
  5    held or fenced: somebody else has the turn
  6    damaged: what is safe was printed, and the message says what is not
  130  after Ctrl-C, 143 after SIGTERM: 128 and the number of the signal

hansard turn ends with the code of its program. With several sessions the code is
that of the first one that failed.

With --json an error ends with one line on standard error, for programs:

  {"error":…,"code":…,"exit":…,"hint":…}

and "turn", who holds the turn, if that is the reason.`,
		},
		{
			Use:   "environment",
			Short: "The environment variables that commands use",
			Long: `The environment variables that commands use. "hansard config" shows which apply.

  HANSARD_STORE       the store, where --store is not given
  HANSARD_TOKEN       the token for a store that is a server
  HANSARD_TOKEN_FILE  the file it is in instead, readable by its owner alone
  HANSARD_AUTHOR      the author of what is appended without --author
  HANSARD_CONFIG      another configuration file than
                      $XDG_CONFIG_HOME/hansard/config.toml
  XDG_DATA_HOME       the store is $XDG_DATA_HOME/hansard if nothing else is
                      set, and without it ~/.local/share/hansard
  NO_COLOR            no colours, whatever its value

A program that hansard turn runs finds its store, its session and its grant in
HANSARD_STORE, HANSARD_SESSION and HANSARD_TURN; append, set and rm write to that
session under that grant.`,
		},
	}
}
