package main

import "github.com/spf13/cobra"

// newCompletion is cobra's command for shell completion scripts, with our
// help text.
func newCompletion(root *cobra.Command) *cobra.Command {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		root.RemoveCommand(cmd)
		cmd.Short = "Print the script that completes commands in your shell"
		cmd.Long = `Print the script that lets your shell complete commands, flags, session ids, kinds,
roles, labels and the names of tokens. "hansard help completion bash" says how to
install it, and likewise for zsh, fish and powershell.`
		cmd.Example = `  source <(hansard completion bash)
  hansard completion zsh >"${fpath[1]}/_hansard"
  hansard completion fish >~/.config/fish/completions/hansard.fish`
		cmd.Args = noCommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		return cmd
	}
	return &cobra.Command{Use: "completion", Hidden: true} // never reached: it was just made
}
