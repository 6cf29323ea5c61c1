package hansard_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hansard/storetest"
)

// What the documents say about tests and files is checked: a name that no longer exists is worse
// than none.

// tests are the tests of the tree, with the name of their folder: "filestore.TestX".
func tests(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(\w+ \*testing\.[TBF]\)`)
	for name, text := range textFiles(t) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		folder := path.Base(path.Dir(name))
		if folder == "." {
			folder = "hansard"
		}
		for _, m := range declared.FindAllStringSubmatch(text, -1) {
			out[folder+"."+m[1]] = true
		}
	}
	if len(out) < 100 {
		t.Fatalf("only %d tests were found: this can't be the whole tree", len(out))
	}
	return out
}

// textFiles are the text files of the repository, by path.
func textFiles(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			// Packages of npm are unpacked beside node_modules while other tests run.
			if slices.Contains([]string{".git", "dist", "testdata"}, d.Name()) || strings.HasPrefix(d.Name(), "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		base := d.Name()
		known := slices.Contains([]string{".go", ".md", ".js", ".mjs", ".css", ".html", ".sql", ".yml"}, filepath.Ext(base)) ||
			base == "Makefile" || filepath.Dir(name) == "scripts" || filepath.Dir(name) == ".ci"
		if !known || !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(name)
		out[filepath.ToSlash(name)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// failure is one number of docs/failures.md.
type failure struct {
	name  string   // "F1", "21"
	tests []string // "filestore.TestX"
	cases []string // of storetest
	owed  bool
}

func failures(t *testing.T) map[string]failure {
	t.Helper()
	page, err := os.ReadFile("docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	begins := regexp.MustCompile(`(?m)^(?:- \*\*(F\d) |(\d+)\. )`)
	named := regexp.MustCompile("`(?:suite ([^`]+)|(\\w+\\.Test\\w+))`")
	owed := regexp.MustCompile(`\bowed\b`)
	text := string(page)
	at := begins.FindAllStringSubmatchIndex(text, -1)
	out := map[string]failure{}
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		f := failure{name: strings.Trim(text[m[0]:m[1]], "-* .")}
		_, proof, ok := strings.Cut(text[m[0]:end], "→")
		if !ok {
			t.Errorf("docs/failures.md: %s has no line with → and its tests", f.name)
		}
		proof, _, _ = strings.Cut(proof, "\n\n")
		for _, n := range named.FindAllStringSubmatch(proof, -1) {
			if n[1] != "" {
				f.cases = append(f.cases, n[1])
			} else {
				f.tests = append(f.tests, n[2])
			}
		}
		f.owed = owed.MatchString(proof)
		if _, twice := out[f.name]; twice {
			t.Errorf("docs/failures.md has two %s", f.name)
		}
		out[f.name] = f
	}
	return out
}

// TestFailuresAreDefended: every number of docs/failures.md has a test that exists, or says that
// it is owed; and the numbers that tests and suite cite exist.
func TestFailuresAreDefended(t *testing.T) {
	list, exist := failures(t), tests(t)
	for _, n := range []string{"F1", "F2", "F3", "F4", "F5", "1", "67"} {
		if _, ok := list[n]; !ok {
			t.Errorf("docs/failures.md has no %s", n)
		}
	}
	for n := 1; n <= len(list)-5; n++ {
		if _, ok := list[fmt.Sprint(n)]; !ok {
			t.Errorf("docs/failures.md has %d numbers, but no %d", len(list)-5, n)
		}
	}
	answers := map[string]string{}
	for _, c := range storetest.Cases() {
		answers[c.Name] = c.Answers
		for _, n := range strings.Fields(c.Answers) {
			if _, ok := list[n]; !ok {
				t.Errorf("storetest case %q answers %s, which is not in docs/failures.md", c.Name, n)
			}
		}
	}
	for _, f := range list {
		if len(f.tests)+len(f.cases) == 0 && !f.owed {
			t.Errorf("docs/failures.md: %s names no test; name one, or write: owed", f.name)
		}
		for _, name := range f.tests {
			if !exist[name] {
				t.Errorf("docs/failures.md: %s names %s, which does not exist", f.name, name)
			}
		}
		for _, name := range f.cases {
			if cited, ok := answers[name]; !ok {
				t.Errorf("docs/failures.md: %s names the case %q, which storetest does not have", f.name, name)
			} else if !slices.Contains(strings.Fields(cited), f.name) {
				t.Errorf("docs/failures.md: %s names the case %q, which answers only %q", f.name, name, cited)
			}
		}
	}
	// A test with the number in its name is named at the number.
	numbered := regexp.MustCompile(`^\w+\.Test(?:Sim)?(?:Failure|Founding)0*(F?\d+)(?:_|$)`)
	for name := range exist {
		m := numbered.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		f, ok := list[m[1]]
		switch {
		case !ok:
			t.Errorf("%s: docs/failures.md has no number %s", name, m[1])
		case !slices.Contains(f.tests, name):
			t.Errorf("docs/failures.md: %s does not name %s (and may owe nothing any more)", f.name, name)
		}
	}
	// And a test that cites numbers in its comment cites numbers that exist.
	cited := regexp.MustCompile(`\((?:Failures?) ([0-9F][0-9F, and]*)[.:]`)
	for name, text := range textFiles(t) {
		for _, m := range cited.FindAllStringSubmatch(text, -1) {
			for _, n := range regexp.MustCompile(`F?\d+`).FindAllString(m[1], -1) {
				if _, ok := list[n]; !ok {
					t.Errorf("%s cites failure %s, which docs/failures.md does not have", name, n)
				}
			}
		}
	}
}

// TestDocumentsNameWhatExists: tests, files and pages that the documents mention are in the
// repository.
func TestDocumentsNameWhatExists(t *testing.T) {
	exist, files := tests(t), textFiles(t)
	bare := map[string]bool{}
	for name := range exist {
		_, test, _ := strings.Cut(name, ".")
		bare[test] = true
	}
	test := regexp.MustCompile("`(?:(\\w+)\\.)?((?:Test|Benchmark|Fuzz)[A-Z]\\w*)`")
	file := regexp.MustCompile("`((?:[\\w.-]+/)+[\\w.-]+\\.(?:go|md|mjs|js|json|sql))[`:]")
	link := regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)
	for name, text := range files {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range test.FindAllStringSubmatch(text, -1) {
			if m[1] != "" && !exist[m[1]+"."+m[2]] || m[1] == "" && !bare[m[2]] {
				t.Errorf("%s names the test %s, which does not exist", name, strings.Trim(m[0], "`"))
			}
		}
		for _, m := range file.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.FromSlash(m[1])); err != nil {
				t.Errorf("%s names the file %s, which does not exist", name, m[1])
			}
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.FromSlash(path.Join(path.Dir(name), m[1]))); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			}
		}
	}
}

// TestNothingIsCitedThatIsNotHere: the code does not cite a page that is not in the repository.
func TestNothingIsCitedThatIsNotHere(t *testing.T) {
	page := regexp.MustCompile(`[\w./-]*\w\.md\b`)
	elsewhere := regexp.MustCompile(`(?i)design[ -]?(page|doc\b|document)`)
	for name, text := range textFiles(t) {
		if name == "docs_test.go" {
			continue
		}
		if slices.Contains([]string{".js", ".mjs", ".css", ".html"}, path.Ext(name)) {
			text = "" // there .md is a CSS class
		}
		for _, cited := range page.FindAllString(text, -1) {
			near := path.Join(path.Dir(name), cited)
			if !exists(cited) && !exists(near) && !exists(path.Join("docs", cited)) {
				t.Errorf("%s cites %s, which is not in the repository", name, cited)
			}
		}
		for i, line := range strings.Split(text, "\n") {
			if m := elsewhere.FindString(line); m != "" {
				t.Errorf("%s:%d mentions %q, which is not in the repository", name, i+1, strings.TrimSpace(m))
			}
		}
	}
}

func exists(name string) bool {
	_, err := os.Stat(filepath.FromSlash(name))
	return err == nil
}

// TestPromisesAndInvariantsAreDefined: a test that says "(P6, P7)" or "invariant 19" refers to
// something that is defined.
func TestPromisesAndInvariantsAreDefined(t *testing.T) {
	promises := defined(t, "docs/testing.md", `(?m)^- \*\*(P\d+)\*\* `)
	invariants := defined(t, "docs/protocol.md", `(?m)^(\d+)\. `)
	cited := map[string]int{}
	for name, text := range textFiles(t) {
		if path.Ext(name) != ".go" {
			continue
		}
		for _, m := range regexp.MustCompile(`// .*\(((?:P\d+(?:, )?)+)\)`).FindAllStringSubmatch(text, -1) {
			for _, p := range strings.Split(m[1], ", ") {
				cited["promise"]++
				if !promises[p] {
					t.Errorf("%s cites promise %s, which docs/testing.md does not define", name, p)
				}
			}
		}
		for _, m := range regexp.MustCompile(`\binvariant (\d+)\b`).FindAllStringSubmatch(text, -1) {
			cited["invariant"]++
			if !invariants[m[1]] {
				t.Errorf("%s cites invariant %s, which docs/protocol.md does not define", name, m[1])
			}
		}
	}
	if cited["promise"] == 0 || cited["invariant"] == 0 {
		t.Errorf("nothing was found that cites a promise or an invariant (%v): this test looks for the wrong words", cited)
	}
	for n := 1; n <= 10; n++ {
		if p := fmt.Sprintf("P%d", n); !promises[p] {
			t.Errorf("docs/testing.md does not define %s; it has %v", p, slices.Sorted(maps.Keys(promises)))
		}
	}
	for n := 1; n <= 22; n++ {
		if !invariants[fmt.Sprint(n)] {
			t.Errorf("docs/protocol.md does not define invariant %d", n)
		}
	}
}

func defined(t *testing.T, page, pattern string) map[string]bool {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(b), -1) {
		out[m[1]] = true
	}
	return out
}

// owned is a row of the map in CONTRIBUTING.md.
type owned struct {
	line     string
	packages []string // by folder
	knows    []string // by import path, without other packages of the row
	any      bool     // "everything"
	noEngine bool
}

// ownersMap reads the map. What follows the first semicolon of "knows" is for people.
func ownersMap(t *testing.T, folders map[string][]string) []owned {
	t.Helper()
	page, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## The map\n")
	text, _, _ = strings.Cut(text, "\n## ")
	name := regexp.MustCompile("`([^`]+)`")
	var rows []owned
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.Contains(cells[0], "`") && !strings.HasPrefix(cells[0], " root package") {
			continue
		}
		knows, _, _ := strings.Cut(cells[2], ";")
		row := owned{line: strings.TrimSpace(cells[0]), any: strings.TrimSpace(knows) == "everything", noEngine: strings.Contains(cells[2], "no engine")}
		for _, m := range name.FindAllStringSubmatch(cells[0], -1) {
			folder := m[1]
			if folder == "hansard" {
				folder = "."
			}
			row.packages = append(row.packages, folder)
		}
		for _, m := range name.FindAllStringSubmatch(knows, -1) {
			known := m[1]
			if _, ok := folders["filestore/internal/"+known]; ok {
				known = "filestore/internal/" + known
			}
			switch _, ok := folders[known]; {
			case known == "hansard":
				row.knows = append(row.knows, "hansard")
			case ok:
				row.knows = append(row.knows, "hansard/"+known)
			}
		}
		slices.Sort(row.knows)
		rows = append(rows, row)
	}
	return rows
}

// folders are the folders with Go files, of all modules of the repository, with the packages
// of ours that they import, tests excepted.
func folders(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for name, text := range textFiles(t) {
		if path.Ext(name) != ".go" {
			continue
		}
		dir := path.Dir(name)
		if out[dir] == nil {
			out[dir] = []string{}
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			p := strings.Trim(spec.Path.Value, `"`)
			if (p == "hansard" || strings.HasPrefix(p, "hansard/")) && !slices.Contains(out[dir], p) {
				out[dir] = append(out[dir], p)
			}
		}
	}
	return out
}

// folderOf is the folder of a package.
func folderOf(importPath string) string {
	if importPath == "hansard" {
		return "."
	}
	return strings.TrimPrefix(importPath, "hansard/")
}

// TestMap: the map in CONTRIBUTING.md has every package once, and says what it imports. What
// is said to know no engine doesn't, not even through another package.
func TestMap(t *testing.T) {
	imports := folders(t)
	rows := ownersMap(t, imports)
	var reached func(folder string, seen map[string]bool)
	reached = func(folder string, seen map[string]bool) {
		for _, p := range imports[folder] {
			if next := folderOf(p); !seen[next] {
				seen[next] = true
				reached(next, seen)
			}
		}
	}
	owner := map[string]string{}
	noEngine := 0
	for _, row := range rows {
		union := map[string]bool{}
		for _, folder := range row.packages {
			if first, twice := owner[folder]; twice {
				t.Errorf("the map has %s twice: %s, %s", folder, first, row.line)
			}
			owner[folder] = row.line
			for _, p := range imports[folder] {
				if !slices.Contains(row.packages, folderOf(p)) {
					union[p] = true
				}
			}
			if !row.noEngine {
				continue
			}
			noEngine++
			seen := map[string]bool{}
			reached(folder, seen)
			for _, engine := range []string{"filestore", "pgstore", "memstore"} {
				if seen[engine] {
					t.Errorf("the map says that %s knows no engine, but it imports %s, or a package that does", folder, engine)
				}
			}
		}
		if is := slices.Sorted(maps.Keys(union)); !row.any && !slices.Equal(is, row.knows) {
			t.Errorf("the map says that %s knows\n%v, but it imports\n%v", row.line, row.knows, is)
		}
	}
	for folder := range imports {
		if owner[folder] == "" {
			t.Errorf("CONTRIBUTING.md: the map has no row for %s", folder)
		}
	}
	if len(rows) < 30 || noEngine < 10 {
		t.Errorf("%d rows, %d packages that know no engine: is this the map?", len(rows), noEngine)
	}
}
