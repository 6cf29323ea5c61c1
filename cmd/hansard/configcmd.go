package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func newConfig(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show and change your settings",
		Long: `Show the settings that apply and where each comes from. A flag overrides the
environment, the environment the configuration file, and that the default.

  store       --store, HANSARD_STORE: the store that commands use
  token_file  HANSARD_TOKEN_FILE: the file with the token for a store that is a
              server; HANSARD_TOKEN itself overrides it
  author      --author, HANSARD_AUTHOR: who you are, for what append stores of TEXT,
              - and --data
  colour      --colour, NO_COLOR: auto (on a terminal), always or never

The file is the one that HANSARD_CONFIG names, else
$XDG_CONFIG_HOME/hansard/config.toml, else ~/.config/hansard/config.toml. It has lines
such as store = "~/agents/sessions" and comments; "hansard config set" changes one line
and leaves the others. An unknown key is an error. The token of token_file is sent only
to the store of the same configuration file, and its file must be readable by its owner
alone (chmod 600).`,
		Example: `  hansard config
  hansard config set store http://127.0.0.1:4267
  hansard config set author ada
  hansard config get store
  hansard config unset store`,
		Args:              noCommand,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return a.showConfig() },
	}
	cmd.AddCommand(newConfigGet(a), newConfigSet(a), newConfigUnset(a), newConfigPath(a))
	return cmd
}

// showConfig prints what applies and where it comes from.
func (a *app) showConfig() error {
	t := &table{columns: []column{{name: "SETTING"}, {name: "VALUE", shrink: 20}, {name: "FROM", drop: 1}}}
	for _, s := range settings {
		v, err := a.applySetting(s.key)
		if err != nil {
			return err
		}
		v.Value = shownStore(v.Value)
		if a.json {
			if err := a.out.jsonLine(v); err != nil {
				return err
			}
			continue
		}
		from := v.Source
		if from == "" {
			from = v.From
		}
		if v.Value == "" {
			v.Value, from = "–", "not set"
		}
		t.add("", v.Setting, escapeLine(v.Value), escapeLine(shortPath(from)))
	}
	if a.json {
		return nil
	}
	return t.print(a.out)
}

// shortPath is a path with ~ for the home directory, for people.
func shortPath(path string) string {
	home, err := os.UserHomeDir()
	if rest, ok := strings.CutPrefix(path, home+string(filepath.Separator)); ok && err == nil && home != "" {
		return filepath.Join("~", rest)
	}
	return path
}

func newConfigGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get KEY",
		Short: "Print the value of a setting that applies",
		Long: `Print the value of a setting that applies, wherever it comes from. If it is not set,
the exit code is 3.`,
		Example:           "  hansard config get store",
		Args:              arguments(1, "a key"),
		ValidArgsFunction: completeKeys,
		RunE: func(_ *cobra.Command, args []string) error {
			v, err := a.applySetting(args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.out.jsonLine(v)
			}
			if v.Value == "" {
				return &hinted{fmt.Errorf("%s is %w", args[0], errNotSet), "set it with: hansard config set " + args[0] + " VALUE"}
			}
			_, err = fmt.Fprintln(a.out, v.Value)
			return err
		},
	}
}

// errNotSet is a setting that has neither a value nor a default.
var errNotSet = errors.New("not set")

// applySetting is apply with the global flags.
func (a *app) applySetting(key string) (applied, error) {
	switch key {
	case "store":
		return a.apply(key, a.store, a.storeSet)
	case "colour":
		return a.apply(key, a.colour, a.colourSet)
	}
	return a.apply(key, "", false)
}

func newConfigSet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "set KEY VALUE",
		Short: "Set a setting in the configuration file",
		Long: `Set a setting in the configuration file, which is created if it does not exist. Other
lines and comments stay as they are. Relative paths become absolute.`,
		Example: `  hansard config set store ~/agents/sessions
  hansard config set colour never`,
		Args:              arguments(2, "a key", "a value"),
		ValidArgsFunction: completeSettings,
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := findSetting(args[0])
			if err != nil {
				return err
			}
			value := args[1]
			if err := checkShown("the value", value); err != nil {
				return err
			}
			if s.path && value != "" && !strings.HasPrefix(value, "~/") {
				value = absoluteSpec(value)
			}
			if _, err := s.checked(value); err != nil {
				return &usageError{fmt.Sprintf("%s: %v", s.key, err), s.key + " is " + s.about}
			}
			if _, err := a.config(); err != nil {
				return err // must be fixed first; unset can do that
			}
			return a.changeConfig(s.key, &value)
		},
	}
}

func newConfigUnset(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "unset KEY",
		Short: "Remove a setting from the configuration file",
		Long: `Remove a setting from the configuration file, even an unknown one. Other lines and
comments stay as they are.`,
		Example:           "  hansard config unset author",
		Args:              arguments(1, "a key"),
		ValidArgsFunction: completeKeys,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.changeConfig(args[0], nil)
		},
	}
}

func newConfigPath(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "path",
		Short:             "Print where the configuration file is",
		Long:              "Print where the configuration file is, or would be.",
		Example:           `  "$EDITOR" "$(hansard config path)"`,
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			file := configFile()
			if file == "" {
				return errNoConfigDir
			}
			_, err := fmt.Fprintln(a.out, file)
			return err
		},
	}
}

var errNoConfigDir = &usageError{"there is no home directory to keep the configuration in", "name a file with HANSARD_CONFIG"}

// changeConfig changes a line of the file, removes it if the value is nil, and says
// what applies now: a flag or the environment may override it.
func (a *app) changeConfig(key string, value *string) error {
	c := &config{file: configFile()}
	if c.file == "" {
		return errNoConfigDir
	}
	content, err := c.read()
	if err != nil {
		return err
	}
	changed, err := setTOML(c.file, content, key, value)
	if err != nil {
		return err
	}
	if changed != content {
		if err := writeConfig(c.file, changed); err != nil {
			return fmt.Errorf("writing the configuration: %w", err)
		}
	}
	a.configured = nil // it has changed
	if _, err := findSetting(key); err != nil && changed != content {
		return nil // an unknown setting was removed
	}
	now, err := a.applySetting(key)
	if err != nil {
		return err
	}
	if now.From == fromEnv || now.From == fromFlag {
		fmt.Fprintf(a.stderr, "hansard: note: %s counts before the file\n", now.Source)
	}
	if a.json {
		return a.out.jsonLine(now)
	}
	if now.Value == "" {
		now.Value = "–"
	}
	_, err = fmt.Fprintf(a.out, "%s  %s\n", key, escapeLine(shownStore(now.Value)))
	return err
}

// writeConfig replaces the file as a whole: concurrent readers see the old one. A
// symbolic link to a file kept elsewhere stays a link.
func writeConfig(file, content string) error {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".config-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(content)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// completeKeys offers the settings.
func completeKeys(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var keys []string
	if len(args) == 0 {
		for _, s := range settings {
			keys = append(keys, s.key+"\t"+s.about)
		}
	}
	return keys, cobra.ShellCompDirectiveNoFileComp
}

// completeSettings offers the settings and then their values.
func completeSettings(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 1 && args[0] == "colour":
		return colourNames, cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1 && args[0] == "store":
		return nil, cobra.ShellCompDirectiveFilterDirs
	case len(args) == 1 && args[0] == "token_file":
		return nil, cobra.ShellCompDirectiveDefault
	}
	return completeKeys(cmd, args, prefix)
}
