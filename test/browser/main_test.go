package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// Shared by the tests: one browser, and the command, built once.
var (
	chromium context.Context
	command  string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hansard-browser-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	command = filepath.Join(dir, "hansard")
	build := exec.Command("go", "build", "-o", command, "./cmd/hansard")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the command: %v\n%s", err, out)
		return 1
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // the tests may run as root, where the browser refuses to start with a sandbox
		chromedp.Flag("hide-scrollbars", false),
		chromedp.WindowSize(1280, 800),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var cancel context.CancelFunc
	chromium, cancel = chromedp.NewContext(allocator)
	defer cancel()
	if err := chromedp.Do(chromium); err != nil {
		fmt.Fprintf(os.Stderr, "starting chromium: %v\ntest/browser/run installs it\n", err)
		return 1
	}
	return m.Run()
}
