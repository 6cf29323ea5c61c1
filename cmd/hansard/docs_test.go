//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestDocsTurns runs the commands of docs/turns.md, in order, in one shell.
func TestDocsTurns(t *testing.T) {
	page, err := os.ReadFile("../../docs/turns.md")
	if err != nil {
		t.Fatal(err)
	}
	script := "set -e\n"
	blocks := regexp.MustCompile("(?s)```sh run\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, block := range blocks {
		script += block[1]
	}
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "HANSARD_STORE="+filepath.Join(dir, "store"))
	cmd.WaitDelay = time.Second // what the shell left behind has the pipe
	timer := time.AfterFunc(2*waitMax, func() { cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	if err != nil || len(blocks) < 6 {
		t.Errorf("%d blocks: %v", len(blocks), err)
	}
	for _, want := range []string{"Thinking about 1", "taken by critic", "refused: 5", "When you have a moment", "user  inbox",
		"taken over by successor", "I go on", "the planner's command ended with 5"} {
		if !strings.Contains(string(out)+hansardOK(t, filepath.Join(dir, "store"), "show", "demo"), want) {
			t.Errorf("no %q", want)
		}
	}
	t.Logf("%s", out)
}
