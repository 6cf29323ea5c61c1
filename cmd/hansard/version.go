package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set when a release is linked; otherwise the build says what it knows.
var version string

// build describes this program.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func buildVersion() build {
	b := build{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Revision = s.Value
			}
		}
	}
	if b.Version == "" && ok && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	return b
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Print the version of this program",
		Long:              "Print the version of this program and what it was built with.",
		Example:           "  hansard version --json",
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			b := buildVersion()
			if a.json {
				return a.out.jsonLine(b)
			}
			_, err := fmt.Fprintf(a.out, "hansard %s (%s, %s/%s)\n", b.Version, b.Go, b.OS, b.Arch)
			return err
		},
	}
}
