package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"hansard/internal/heed"
)

// TestMain lets the test binary act as the command: scripts and tests find it as "hansard" in
// PATH.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "hansard" {
		os.Setenv("HANSARD_CONFIG", os.DevNull) // ignore the settings of the user who runs the tests
		heed.Signals()
	}
	testscript.Main(m, map[string]func(){
		"hansard": func() {
			os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// TestScripts runs testdata/script: one script per command, and one for bad input. Every script
// has its own store, which does not exist at first.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HANSARD_STORE", filepath.Join(env.WorkDir, "store"))
			env.Setenv("TZ", "UTC")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":      cmdCode,
			"snapshot":  cmdSnapshot,
			"unchanged": cmdUnchanged,
			"bigstring": cmdBigString,
			"bytes":     cmdBytes,
			"corrupt":   cmdCorrupt,
			"listening": cmdListening,
		},
		RequireExplicitExec: true,
	})
}

// code N PROGRAM ARGS… expects an exit code.
func cmdCode(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if want := args[0]; strconv.Itoa(got) != want {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
}

// snapshot FILE-OR-DIR remembers every name and every byte; unchanged compares.
func cmdSnapshot(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv("SNAPSHOT_"+args[0], treeHash(ts, args[0]))
}

func cmdUnchanged(ts *testscript.TestScript, neg bool, args []string) {
	same := treeHash(ts, args[0]) == ts.Getenv("SNAPSHOT_"+args[0])
	if same == neg {
		ts.Fatalf("%s changed: %v", args[0], !same)
	}
}

func treeHash(ts *testscript.TestScript, name string) string {
	h := sha256.New()
	root := ts.MkAbs(name)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == root {
			fmt.Fprint(h, "absent")
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(h, path, d.Type())
		if d.Type().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%d %x\n", len(content), sha256.Sum256(content))
		}
		return nil
	})
	ts.Check(err)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// bigstring N FILE writes a line with a JSON string of N bytes, quotes included.
func cmdBigString(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	text := bytes.Repeat([]byte("x"), n)
	text[0], text[n-1] = '"', '"'
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), append(text, '\n'), 0o600))
}

// bytes FILE TEXT writes a file of any bytes: TEXT has the escapes of a Go string, its double
// quotes stand for themselves.
func cmdBytes(ts *testscript.TestScript, _ bool, args []string) {
	content, err := strconv.Unquote(`"` + strings.ReplaceAll(args[1], `"`, `\"`) + `"`)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(content), 0o600))
}

// corrupt FILE OLD NEW replaces the first OLD with NEW, of the same length.
func cmdCorrupt(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	content, err := os.ReadFile(path)
	ts.Check(err)
	if !bytes.Contains(content, []byte(args[1])) {
		ts.Fatalf("%s does not contain %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(path, bytes.Replace(content, []byte(args[1]), []byte(args[2]), 1), 0o600))
}

// listening SOCKET waits until a server listens on a Unix socket.
func cmdListening(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("unix", ts.MkAbs(args[0])); err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("nobody listens on %s", args[0])
		}
	}
}
