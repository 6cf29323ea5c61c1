package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMan writes the manual from the help of the commands. cobra has a generator for
// that too, but it treats help as Markdown, shows flags in a form that no command
// accepts, and brings three dependencies.
func newMan(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all commands",
		Long: `Write the manual pages of all commands into a directory, which is created if it does
not exist: hansard.1, hansard-append.1 and so on, for man to find.`,
		Example: `  hansard man ~/.local/share/man/man1
  man hansard-append`,
		Args:              arguments(1, "a directory"),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			n, err := writePages(cmd.Root(), dir)
			if err != nil {
				return err
			}
			if a.json {
				return a.out.jsonLine(map[string]any{"dir": dir, "pages": n})
			}
			_, err = fmt.Fprintf(a.out, "wrote %s to %s\n", plural(n, "page"), escapeLine(dir))
			return err
		},
	}
}

// writePages writes the page of a command and those of its subcommands.
func writePages(cmd *cobra.Command, dir string) (pages int, err error) {
	if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() {
		return 0, nil
	}
	name := filepath.Join(dir, pageName(cmd)+".1")
	if err := os.WriteFile(name, manPage(cmd), 0o644); err != nil { //nolint:gosec // for everybody to read
		return 0, err
	}
	pages = 1
	for _, sub := range cmd.Commands() {
		n, err := writePages(sub, dir)
		pages += n
		if err != nil {
			return pages, err
		}
	}
	return pages, nil
}

// pageName is hansard-token-add.
func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is the page of a command, in roff.
func manPage(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	// No date: the same program writes the same pages.
	fmt.Fprintf(&b, ".TH %s 1 \"\" %q Hansard\n", roff(strings.ToUpper(pageName(cmd))), "hansard "+cmd.Root().Version)
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))
	section("SYNOPSIS")
	use := strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath())
	if cmd.HasAvailableSubCommands() {
		use = "COMMAND"
	}
	fmt.Fprintf(&b, ".B %s\n%s\n", roff(cmd.CommandPath()), roff(strings.TrimSpace(use)))
	section("DESCRIPTION")
	writeText(&b, cmd.Long)
	if cmd.HasAvailableSubCommands() {
		section("COMMANDS")
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && !sub.IsAdditionalHelpTopicCommand() {
				fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(sub)), roff(sub.Short))
			}
		}
	}
	if cmd.HasAvailableLocalFlags() {
		section("OPTIONS")
		writeFlags(&b, cmd.LocalFlags())
	}
	if cmd.HasAvailableInheritedFlags() {
		section("OPTIONS OF ALL COMMANDS")
		writeFlags(&b, cmd.InheritedFlags())
	}
	for _, topic := range cmd.Commands() {
		if topic.IsAdditionalHelpTopicCommand() {
			section(roff(strings.ToUpper(strings.ReplaceAll(topic.Name(), "-", " "))))
			writeText(&b, topic.Long)
		}
	}
	if cmd.HasExample() {
		section("EXAMPLES")
		writeText(&b, cmd.Example)
	}
	if cmd.HasParent() {
		section("SEE ALSO")
		fmt.Fprintf(&b, ".BR %s (1)\n", roff(pageName(cmd.Parent())))
	}
	return b.Bytes()
}

func writeFlags(b *bytes.Buffer, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		takes, usage := pflag.UnquoteUsage(f)
		names := "--" + f.Name
		if f.Shorthand != "" {
			names = "-" + f.Shorthand + ", " + names
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(names))
		if takes != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(takes))
		}
		switch f.DefValue {
		case "", "0", "false", "[]":
		default:
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		fmt.Fprintf(b, "\n%s\n", roff(usage))
	})
}

// writeText writes paragraphs, which man fills, and indented lines, which are kept.
func writeText(b *bytes.Buffer, text string) {
	kept := false
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		line = strings.TrimRight(line, "\n")
		if indented := strings.HasPrefix(line, " "); indented != kept && line != "" {
			if kept = indented; kept {
				b.WriteString(".PP\n.nf\n")
			} else {
				b.WriteString(".fi\n")
			}
		}
		switch {
		case line == "" && !kept:
			b.WriteString(".PP\n")
		case line == "":
			b.WriteString("\n")
		default:
			b.WriteString(roff(line) + "\n")
		}
	}
	if kept {
		b.WriteString(".fi\n")
	}
}

var roffSpecial = regexp.MustCompile(`(?m)^[.']|[-\\]`)

// roff is text escaped for man, so that nothing in it is a command or an escape,
// and a minus does not become a hyphen.
func roff(s string) string {
	return roffSpecial.ReplaceAllStringFunc(s, func(c string) string {
		switch c {
		case `\`:
			return `\e`
		case "-":
			return `\-`
		}
		return `\&` + c
	})
}
