package main

import (
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
)

func TestDescribeBuild(t *testing.T) {
	vcs := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "310f112d2c5a"}, {Key: "vcs.modified", Value: modified}}
	}
	for _, c := range []struct {
		what, linked string
		info         *debug.BuildInfo
		version      string
		revision     string
		modified     bool
	}{
		{"make build at a tag", "v1.2.3", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: vcs("false")}, "v1.2.3", "310f112d2c5a", false},
		{"make build behind a tag", "v1.2.3-4-g310f112", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "v1.2.3-4-g310f112", "", false},
		{"make build without a tag", "310f112d2c5a-dirty", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs("true")}, "dev-310f112d2c5a-dirty", "310f112d2c5a", true},
		{"go install", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3", "", false},
		{"go build in a clone", "", &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20260102030405-310f112d2c5a+dirty"}, Settings: vcs("true")},
			"v0.0.0-20260102030405-310f112d2c5a+dirty", "310f112d2c5a", true},
		{"go build without git", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "dev", "", false},
		{"a test binary", "", &debug.BuildInfo{}, "dev", "", false},
		{"no build info", "", nil, "dev", "", false},
	} {
		got := describeBuild(c.linked, c.info)
		if got.Version != c.version || got.Revision != c.revision || got.Modified != c.modified || got.Go == "" || got.OS == "" || got.Arch == "" {
			t.Errorf("%s: %+v, want version %q, revision %q, modified %v", c.what, got, c.version, c.revision, c.modified)
		}
	}
}

// TestMakeBuildFlags: the binary that make builds contains no path of the machine, and knows its
// commit.
func TestMakeBuildFlags(t *testing.T) {
	root := "../.."
	commit, err := exec.Command("git", "-C", root, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		t.Skip("SKIPPED: no git here, or no checkout")
	}
	out, err := exec.Command("make", "-n", "-C", root, "build").Output()
	if err != nil {
		t.Skip("SKIPPED: no make here")
	}
	line := string(out)
	if !strings.Contains(line, " -trimpath ") {
		t.Errorf("make build does not trim paths: %s", line)
	}
	described, err := exec.Command("git", "-C", root, "describe", "--tags", "--match", "v*", "--always", "--abbrev=12").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := "-X main.version=" + strings.TrimSpace(string(described)); !strings.Contains(line, want) {
		t.Errorf("at commit %s make build links no version %q: %s", commit, want, line)
	}
}
