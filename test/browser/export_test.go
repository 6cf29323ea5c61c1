package browser

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"

	"hansard"
	"hansard/exporter"
)

// TestExportMenu: every format can be chosen in the page, and the saved file has the name and the
// bytes that the exporter produces.
func TestExportMenu(t *testing.T) {
	s, url := serve(t)
	const id = "claude:5f2c"
	meta := hansard.Meta{Title: "Fixing", Labels: map[string]string{"tool": "claude", "source": "5f2c"}}
	if _, err := s.Create(t.Context(), id, meta); err != nil {
		t.Fatal(err)
	}
	append1(t, s, id, says("user", "ada", "fix it — ü"))
	append1(t, s, id, says("assistant", "", "Done."))
	info, err := s.Stat(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := newTab(t, url)
	of := chromedp.FromContext(p.ctx).BrowserContextID // each tab has its own context
	p.call(chromedp.Call(p.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: "allow", BrowserContextID: of, DownloadPath: dir}))
	p.open("/#token=" + token)
	p.click(`.sessions a[href*="5f2c"]`)
	p.sees("Done.")
	for _, f := range exporter.Formats() {
		var want bytes.Buffer
		if err := f.Write(t.Context(), s, id, &want); err != nil {
			t.Fatal(err)
		}
		p.press("m")
		p.until(`document.querySelector(".menu-list")`)
		eval[bool](p, `([...document.querySelectorAll(".menu-list span")].find((e) => e.textContent == "Export").click(), true)`)
		p.until(`document.querySelector("dialog select")`)
		if !eval[bool](p, `((select, value) => { select.value = value; return select.value == value; })(document.querySelector("dialog select"), %q)`, f.Name) {
			t.Errorf("the menu has no format %s", f.Name)
		}
		p.click(`dialog button[type="submit"], dialog .primary`)
		p.until(`!document.querySelector("dialog")`)
		path := filepath.Join(dir, f.FileName(info))
		got := saved(t, dir, path)
		if f.Name == "html" || f.Name == "md" { // they may say when they were made
			if !strings.Contains(string(got), "fix it — ü") || !strings.Contains(string(got), "Done.") {
				t.Errorf("%s is %s", path, got)
			}
		} else if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s is\n%s\nwant\n%s", path, got, want.Bytes())
		}
		if err := os.Remove(path); err != nil { // others have the same name
			t.Error(err)
		}
	}
}

// saved waits for a file, and returns its content.
func saved(t *testing.T, dir, path string) []byte {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(30 * time.Millisecond) { // between two looks
		data, err := os.ReadFile(path)
		entries, _ := os.ReadDir(dir)
		if err == nil && len(data) > 0 && len(entries) == 1 { // else a partial file is beside it
			return data
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s: %v; there is %v", patience, path, err, entries)
		}
	}
}
