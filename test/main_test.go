//go:build unix

package test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"hansard/internal/heed"
	"hansard/internal/pgtest"
)

// waitMax bounds every wait of these tests, so that they fail instead of hanging. It is far above
// anything a slow machine needs.
const waitMax = 60 * time.Second

// program is the path of the command, built by TestMain.
var program string

func TestMain(m *testing.M) {
	if name := os.Getenv(workerEnv); name != "" {
		os.Exit(runWorker(name, os.Args[1:]))
	}
	flag.Parse()
	heed.Signals()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hansard-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "hansard")
	build := exec.Command("go", "build", "-o", program, "hansard/cmd/hansard")
	// Without a dynamic loader every system call is the program's own.
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return pgtest.Main(m)
}

// scale is how much a test does: HANSARD_TORTURE=10 means ten times as much.
func scale(n int) int {
	if f, err := strconv.Atoi(os.Getenv("HANSARD_TORTURE")); err == nil && f > 0 {
		return n * f
	}
	return n
}

// seeded returns the random source of a test and prints the seed that replays it.
func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("HANSARD_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("HANSARD_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// skip skips a test, visibly, or fails where nothing may be skipped.
func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf("SKIPPED: %s: %s", t.Name(), fmt.Sprintf(format, args...))
	if os.Getenv("HANSARD_NO_SKIP") == "1" {
		t.Fatal(line)
	}
	fmt.Println(line)
	t.Skip(line)
}

// needs skips a test if a program is missing.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			skip(t, "%s is not installed", p)
		}
	}
}

// newStore is the path of a store that does not exist yet.
func newStore(t *testing.T) string { return filepath.Join(t.TempDir(), "store") }
