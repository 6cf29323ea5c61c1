package test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hansard/filestore"
	"hansard/importer"
)

// claudeFile writes a file as Claude Code does, of about so many bytes, and returns its size.
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

// BenchmarkImport imports a file of Claude Code's and, in the same run, copies it with a
// sync and reads it once more for its SHA-256, as cp and sha256sum do. What is asked for is
// 50 MB/s and at most three times as long.
func BenchmarkImport(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "projects", "-w", "s.jsonl")
	b.SetBytes(claudeFile(b, path, 100<<20))
	var copying, importing time.Duration
	for b.Loop() {
		began := time.Now()
		copyAndSum(b, path, filepath.Join(dir, "copy"))
		copying += time.Since(began)
		store, err := filestore.Open(filepath.Join(dir, "store"), nil)
		if err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		importFile(b, store, filepath.Join(dir, "projects"))
		importing += time.Since(began)
		if err := store.Close(); err != nil {
			b.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "store")); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(importing.Seconds()/copying.Seconds(), "times-cp+sha256")
}

func copyAndSum(b *testing.B, from, to string) {
	b.Helper()
	in, err := os.Open(from)
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	if _, err = io.Copy(out, in); err == nil {
		err = out.Sync()
	}
	if err == nil {
		_, err = out.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = io.Copy(sha256.New(), out)
	}
	if err != nil {
		b.Fatal(err)
	}
}
