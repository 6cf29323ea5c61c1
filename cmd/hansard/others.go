package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// warnOfOthers warns, once per run, that others can write to a store: they could
// change or remove sessions, and what they put there would be read.
func (a *app) warnOfOthers(path string) {
	if runtime.GOOS == "windows" || a.warned || a.stderr == nil { // modes mean nothing there
		return
	}
	for _, name := range []string{".", "sessions", "journal"} {
		file := filepath.Join(path, name)
		info, err := os.Lstat(file)
		if err != nil || info.Mode()&fs.ModeSymlink != 0 || info.Mode().Perm()&0o022 == 0 {
			continue
		}
		a.warned = true
		who := "others"
		if info.Mode().Perm()&0o002 == 0 {
			who = "the members of its group"
		}
		fmt.Fprintf(a.stderr, "hansard: warning: %s can write to %s, and with it change sessions; to end that: %s\n",
			who, escapeLine(file), escapeLine("chmod go-w "+shellQuote(file)))
		return
	}
}
