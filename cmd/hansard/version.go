package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version is what git says about the sources, set by the Makefile when it links the
// program: a tag, commits since a tag, or only a commit.
var version string

// build describes this program.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a checkout with uncommitted changes
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func buildVersion() build {
	info, _ := debug.ReadBuildInfo()
	return describeBuild(version, info)
}

// describeBuild takes the version of a program from what it was linked with, or else
// from what the go command recorded: with go install that is the module's version,
// with go build in a clone the commit.
func describeBuild(linked string, info *debug.BuildInfo) build {
	b := build{Version: linked, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if linked != "" && !strings.HasPrefix(linked, "v") {
		b.Version = "dev-" + linked // no release was tagged before this commit
	}
	if info != nil {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
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
