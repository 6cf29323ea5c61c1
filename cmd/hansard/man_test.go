package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestMan: every visible command has a page, on which man shows every word of its help, without a
// warning.
func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	var out bytes.Buffer
	if code := run(t.Context(), []string{"man", dir}, strings.NewReader(""), &out, &out); code != exitOK {
		t.Fatal(out.String())
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skipf("SKIPPED: the pages are written and not looked at: %v", err)
	}
	wanted := 0
	for _, cmd := range allCommands(t) {
		if cmd.IsAdditionalHelpTopicCommand() || cmd.Hidden {
			continue
		}
		wanted++
		page := filepath.Join(dir, pageName(cmd)+".1")
		// No hyphenation, no justification, nothing bold: words stay words.
		show := exec.Command(groff, "-man", "-Tutf8", "-Kutf8", "-ww", "-rHY=0", "-dAD=l", "-P-cbou", page)
		var complaints bytes.Buffer
		show.Stderr = &complaints
		shown, err := show.Output()
		if err != nil || complaints.Len() > 0 {
			t.Errorf("%s: %v\n%s", page, err, complaints.Bytes())
		}
		missing := wordsMissing(string(shown), manWords(cmd))
		if missing != "" {
			t.Errorf("%s does not show %q in its place:\n%s", page, missing, shown)
		}
	}
	if wanted != len(pages) {
		t.Errorf("%d pages for %d commands", len(pages), wanted)
	}
	if page, _ := os.ReadFile(filepath.Join(dir, "hansard.1")); !strings.Contains(string(page), ".SH EXIT CODES\n") {
		t.Error("the exit codes are on no page")
	}
}

// manWords is what a page must show, in this order.
func manWords(cmd *cobra.Command) []string {
	words := strings.Fields(cmd.Short + " " + cmd.Long)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		takes, usage := pflag.UnquoteUsage(f)
		if !f.Hidden && f.Name != "help" && f.Name != "version" {
			words = append(words, strings.Fields("--"+f.Name+" "+takes+" "+usage)...)
		}
	})
	return append(words, strings.Fields(cmd.Example)...)
}

// wordsMissing is the first of the words that is not shown after those before it. A long word may
// be broken at a slash.
func wordsMissing(shown string, words []string) string {
	shown = strings.Join(strings.Fields(shown), "")
	for _, word := range words {
		_, rest, ok := strings.Cut(shown, word)
		if !ok {
			return word
		}
		shown = rest
	}
	return ""
}

// TestRoff: text is never taken for a roff command.
func TestRoff(t *testing.T) {
	for in, want := range map[string]string{".TH x": `\&.TH x`, "a\n'b": "a\n\\&'b", `\x1b`: `\ex1b`, "--a-b.c'd": `\-\-a\-b.c'd`} {
		if got := roff(in); got != want {
			t.Errorf("roff(%q) = %q, want %q", in, got, want)
		}
	}
}
