//go:build unix

package main

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"hansard/internal/pgtest"
)

// docsRoot is where the README is.
const docsRoot = "../.."

// docPage is how the shell blocks of a page are run. A page that is not listed is run as it is.
type docPage struct {
	// setup makes what the page takes for granted.
	setup string
	// edits are the lines that are run in a different form.
	edits []docEdit
	// needs are programs beyond those of every system.
	needs []string
	// want must appear in the output, or in the session demo.
	want []string
}

// docEdit is a line that is not run as it stands, or not at all, and the reason.
type docEdit struct {
	line string // how it begins
	run  string // instead of it; empty is nothing
	why  string
}

// serving starts a server in the background and waits until it is up.
const serving = ` >serve.out 2>&1 & server=$!
trap 'kill $server; wait $server' EXIT
until grep -q ^serving serve.out; do kill -0 $server; sleep 0.1; done
ADDRESS=$(sed -n 's,^serving http://\(.*\)/$,\1,p' serve.out)`

var docPages = map[string]docPage{
	"README.md": {
		setup: `printf 'hansard append demo "On it" --role agent\n' >agent.sh
printf '#!/bin/sh\nhansard append demo "I object" --role critic\n' >critic.sh
sed -i '1i #!/bin/sh' agent.sh && chmod +x agent.sh critic.sh
printf '"one"\n{"role":"user","data":"two"}\n' >events.jsonl`,
		edits: []docEdit{
			{"hansard tail -f demo", `hansard tail -f demo >followed & follower=$!
until grep -q Lima followed; do kill -0 $follower; sleep 0.1; done
kill $follower; wait $follower || test $? -eq 143`, "it follows until it is stopped"},
			{`hansard append demo "only if nobody was faster" --expect 7`,
				`hansard append demo "only if nobody was faster" --expect 7 || test $? -eq 4`, "the session is longer by then"},
		},
		needs: []string{"jq"},
		want: []string{"Lima.", `"data":"Lima."`, "On it", "I object", "Rather by bus", "nobody held the turn", `"demo"`, "is sound", "author  ada",
			`{"session":"demo","first":`},
	},
	"docs/search.md": {
		setup: `hansard append demo "To deploy it failed: connection refused; migrating now" --create --role tool`,
		want:  []string{"demo#1  just now  tool", `"snippet":"To deploy it failed`},
	},
	"docs/server.md": {
		edits: []docEdit{
			{"hansard serve ", "hansard serve --listen 127.0.0.1:0" + serving, "it serves until it is stopped, on a port that may be taken"},
			{"export HANSARD_TOKEN=…", "export HANSARD_TOKEN=$(sed -n 's/.*#token=//p' serve.out)", "it is another one every time"},
		},
		needs: []string{"curl"},
		want:  []string{`"session":"demo"`, `"first":1`, "dashboard       read", "Hello"},
	},
	"docs/import.md": {
		setup: `mkdir -p $HOME/.claude/projects/-w
echo '{"type":"user","uuid":"u1","sessionId":"1","message":{"role":"user","content":"fix the test"}}' > $HOME/.claude/projects/-w/1.jsonl
echo '[{"role":"user","content":"hello"}]' > chat.json
hansard append demo hello --create`,
		want: []string{"Claude Code      1", "nothing was imported yet", "OpenAI messages      1", "demo  demo.jsonl", "demo  demo.html"},
	},
	"docs/postgres.md": {
		setup: "hansard append old 'from files' --create --store ./sessions",
		edits: []docEdit{
			{"hansard serve --store postgres://app@db.example/hansard",
				"hansard serve --listen 127.0.0.1:0 --store $POSTGRES --token-file ./tokens" + serving + "\nkill $server; wait $server; trap - EXIT",
				"it serves until it is stopped, and /etc is not ours"},
		},
		want: []string{"made the tables", "1 session, 1 event copied; 1 session the same at both ends"},
	},
	"docs/streams.md": {
		setup: "hansard serve --listen 127.0.0.1:0" + serving + `
export HANSARD_TOKEN=$(sed -n 's/.*#token=//p' serve.out)`,
		needs: []string{"curl"},
		want:  []string{"data:Lima is the capital.", `"streamClosed":true`},
	},
	"docs/turns.md": {
		edits: []docEdit{{line: "hansard turn demo --label planner -- ./agent.sh", why: "the next block has a whole agent"}},
		want: []string{"Thinking about 1", "taken by critic", "refused: 5", "When you have a moment", "user  inbox",
			"taken over by successor", "I go on", "the planner's command ended with 5"},
	},
}

// TestDocs runs the shell blocks of the README and of every page of docs, in order, each page in
// one shell with its own home directory.
func TestDocs(t *testing.T) {
	pages, err := filepath.Glob(docsRoot + "/docs/*.md")
	if err != nil || len(pages) < 4 {
		t.Fatal(pages, err)
	}
	var names []string
	for _, page := range append(pages, filepath.Join(docsRoot, "README.md")) {
		name, err := filepath.Rel(docsRoot, page)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.ToSlash(name))
	}
	for name := range docPages {
		if !slices.Contains(names, name) {
			t.Errorf("there is no page %s", name)
		}
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			runPage(t, name, docPages[name])
		})
	}
}

var shellBlock = regexp.MustCompile("(?ms)^```(?:sh|shell|bash|console)\\b[^\n]*\n(.*?)^```")

func runPage(t *testing.T, name string, page docPage) {
	text, err := os.ReadFile(filepath.Join(docsRoot, name))
	if err != nil {
		t.Fatal(err)
	}
	blocks := shellBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		return
	}
	for _, program := range page.needs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIPPED: %v", err)
		}
	}
	script := "set -ex\n" + page.setup + "\n"
	used := map[string]bool{}
	for _, block := range blocks {
		for line := range strings.Lines(block[1]) {
			script += page.edited(line, used)
		}
	}
	for _, e := range page.edits {
		if !used[e.line] {
			t.Errorf("no line begins with %q", e.line)
		}
	}
	home := t.TempDir()
	env := []string{"HOME=" + home, "PATH=" + stubMake(t) + ":" + os.Getenv("PATH"), "TZ=UTC", "LC_ALL=C.UTF-8"}
	if strings.Contains(script, "postgres://") {
		script = regexp.MustCompile(`postgres://\w+@db\.example/hansard`).ReplaceAllString(script, "$$POSTGRES")
		env = append(env, "POSTGRES="+pgtest.New(t).Schema(t))
	}
	script = strings.ReplaceAll(script, "127.0.0.1:4267", "$ADDRESS")
	out, trace := runDoc(t, home, script, env)
	show := exec.Command("hansard", "show", "demo")
	show.Env = env
	shown, _ := show.Output() // a page may have no session of this name
	for _, want := range page.want {
		if !strings.Contains(out+string(shown), want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s\n%s", trace, out, shown)
	}
}

// edited is a line as it is run.
func (p docPage) edited(line string, used map[string]bool) string {
	for _, e := range p.edits {
		if strings.HasPrefix(line, e.line) {
			used[e.line] = true
			return e.run + "\n"
		}
	}
	return line
}

// runDoc runs a script that must succeed, and returns its output, and its errors with the
// commands it ran.
func runDoc(t *testing.T, dir, script string, env []string) (out, trace string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.Env = dir, env
	cmd.WaitDelay = time.Second // background processes of the shell keep the pipe open
	timer := time.AfterFunc(4*waitMax, func() { cmd.Process.Kill() })
	defer timer.Stop()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%v", err)
	}
	return stdout.String(), stderr.String()
}

// stubMake returns a directory with a make that only checks whether it could run: building and
// testing everything is what runs this test.
func stubMake(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(docsRoot)
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	stub := fmt.Sprintf("#!/bin/sh\ncommand -p make -n -C %s \"$@\" >/dev/null\n", shellQuote(root))
	if err := os.WriteFile(filepath.Join(bin, "make"), []byte(stub), 0o700); err != nil {
		t.Fatal(err)
	}
	return bin
}

// TestFirstScreen: the README begins with what Hansard is, in three sentences, and a picture of
// the page. The browser tests make the picture.
func TestFirstScreen(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(docsRoot, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	paragraphs := strings.SplitN(string(text), "\n\n", 4)
	if len(paragraphs) < 4 {
		t.Fatal("the README is too short")
	}
	if n := len(regexp.MustCompile(`\.(\s|$)`).FindAllString(paragraphs[1], -1)); n != 3 {
		t.Errorf("what it is takes %d sentences, want 3:\n%s", n, paragraphs[1])
	}
	picture := regexp.MustCompile(`^!\[[^\]]{20,}\]\((docs/[a-z]+\.png)\)$`).FindStringSubmatch(paragraphs[2])
	if picture == nil {
		t.Fatalf("there is no picture, with a description, but %s", paragraphs[2])
	}
	image, err := os.Open(filepath.Join(docsRoot, picture[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if config, err := png.DecodeConfig(image); err != nil || config.Width < 1000 || config.Height < 500 {
		t.Errorf("%s is %d × %d: %v", picture[1], config.Width, config.Height, err)
	}
}

// TestDocsInline: the commands and flags that the pages mention in passing exist, and so do the
// targets of make.
func TestDocsInline(t *testing.T) {
	pages, err := filepath.Glob(docsRoot + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "FORMAT.md", "CONTRIBUTING.md"} {
		pages = append(pages, filepath.Join(docsRoot, name))
	}
	makefile, err := os.ReadFile(filepath.Join(docsRoot, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		prose := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(string(text), "")
		for _, code := range regexp.MustCompile("`hansard [^`]+`").FindAllString(prose, -1) {
			for _, args := range hansardCalls(strings.Trim(code, "`")) {
				checkCall(t, filepath.Base(page), args)
				checked++
			}
		}
		for _, target := range regexp.MustCompile("`make ([a-z]+)`").FindAllStringSubmatch(prose, -1) {
			if !strings.Contains(string(makefile), "\n"+target[1]+":") {
				t.Errorf("%s: make has no target %s", filepath.Base(page), target[1])
			}
			checked++
		}
	}
	if checked < 30 {
		t.Errorf("%d commands were looked at", checked)
	}
}
