//go:build unix

package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard/filestore"
	"hansard/importer"
)

// claudeFile writes a file of about size bytes as Claude Code does, and returns its actual size.
func claudeFile(tb testing.TB, path string, size int64) int64 {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tb.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	written := int64(0)
	for i := 0; written < size; i++ {
		text := strings.Repeat(fmt.Sprintf("some words of record %d\\n", i), 10+i%400)
		message := fmt.Sprintf(`{"id":"m%d","role":"assistant","model":"c","content":[{"type":"text","text":"%s"}],"usage":{"input_tokens":9,"output_tokens":5}}`, i, text)
		kind := "assistant"
		switch i % 3 {
		case 1:
			message = fmt.Sprintf(`{"id":"m%d","role":"assistant","model":"c","content":[{"type":"tool_use","id":"t%d","name":"Bash","input":{"command":"%s"}}]}`, i, i, text)
		case 2:
			kind, message = "user", fmt.Sprintf(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t%d","content":"%s"}]}`, i-1, text)
		}
		n, err := fmt.Fprintf(f, `{"type":"%s","uuid":"u%d","parentUuid":"u%d","sessionId":"s","timestamp":"2026-08-01T10:00:00.000Z","cwd":"/w","version":"2.1.240","gitBranch":"main","requestId":"r%d","message":%s}`+"\n", kind, i, i-1, i, message)
		if err != nil {
			tb.Fatal(err)
		}
		written += int64(n)
	}
	return written
}

func importFile(tb testing.TB, store *filestore.Store, dir string) importer.Report {
	tb.Helper()
	claude, _ := importer.Find(importer.Formats(), "claude")
	sources, err := importer.Named([]importer.Format{claude}, []string{dir})
	if err != nil {
		tb.Fatal(err)
	}
	var report importer.Report
	if err := (&importer.Engine{Store: store}).Run(context.Background(), sources, func(r importer.Report) { report = r }); err != nil || report.Err != nil {
		tb.Fatal(err, report.Err)
	}
	return report
}

// BenchmarkImport imports a file of Claude Code and, in the same run, copies it with cp and sync
// and sums it with sha256sum. The target is 50 MB/s and at most three times as long. CPU time is
// reported as well: on a busy machine it is the number to trust.
func BenchmarkImport(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "projects", "-w", "s.jsonl")
	b.SetBytes(claudeFile(b, path, 100<<20))
	var copying, importing, again cost
	for b.Loop() {
		programs := copyAndSum(b, path, filepath.Join(dir, "copy"))
		copying.time, copying.cpu = copying.time+programs.time, copying.cpu+programs.cpu
		store, err := filestore.Open(filepath.Join(dir, "store"), nil)
		if err != nil {
			b.Fatal(err)
		}
		began := now()
		importFile(b, store, filepath.Join(dir, "projects"))
		importing.add(began)
		began = now()
		importFile(b, store, filepath.Join(dir, "projects"))
		again.add(began)
		if err := store.Close(); err != nil {
			b.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "store")); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(importing.time.Seconds()/copying.time.Seconds(), "times-cp+sha256")
	b.ReportMetric(importing.cpu.Seconds()/copying.cpu.Seconds(), "cpu-times-cp+sha256")
	b.ReportMetric(again.cpu.Seconds()/importing.cpu.Seconds(), "cpu-again") // for a file that is read again
	b.ReportMetric(float64(b.N)*100*(1<<20)/1e6/importing.time.Seconds(), "import-MB/s")
}

// cost is the elapsed time and the CPU time of something.
type cost struct{ time, cpu time.Duration }

func now() cost {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return cost{time.Duration(time.Now().UnixNano()), time.Duration(u.Utime.Nano() + u.Stime.Nano())}
}

func (c *cost) add(began cost) {
	n := now()
	c.time, c.cpu = c.time+n.time-began.time, c.cpu+n.cpu-began.cpu
}

// copyAndSum runs cp, sync and sha256sum.
func copyAndSum(b *testing.B, from, to string) (c cost) {
	b.Helper()
	began := time.Now()
	for _, args := range [][]string{{"cp", from, to}, {"sync", to}, {"sha256sum", to}} {
		cmd := exec.Command(args[0], args[1:]...)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Skipf("%s: %v: %s", args[0], err, out)
		}
		c.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	c.time = time.Since(began)
	return c
}
