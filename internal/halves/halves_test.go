package halves

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// child has this program choose a half of its own tests.
const child = "HANSARD_HALVES_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		Choose("^TestLong")
	}
	os.Exit(m.Run())
}

func TestLong(*testing.T)      {}
func TestLongOther(*testing.T) {}
func TestShort(*testing.T)     {}

// TestChoose: every test is in exactly one half, and without make or with a choice of
// one's own there are none.
func TestChoose(t *testing.T) {
	if os.Getenv(child) != "" {
		return
	}
	long, rest := []string{"TestLong", "TestLongOther"}, []string{"TestChoose", "TestMakeKnows", "TestShort"}
	all := slices.Sorted(slices.Values(slices.Concat(long, rest)))
	apart, alone := long, all
	if raced {
		apart, alone = rest, rest
	}
	for _, c := range []struct {
		env  string
		args []string
		want []string
	}{
		{variable + "=1", nil, apart},
		{variable + "=", nil, alone},
		{variable + "=1", []string{"-test.run=TestLongOther|TestShort"}, []string{"TestLongOther", "TestShort"}},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], append(c.args, "-test.v")...)
		cmd.Env = append(os.Environ(), child+"=1", c.env)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var ran []string
		for _, m := range regexp.MustCompile(`(?m)^=== RUN +(\w+)$`).FindAllStringSubmatch(string(out), -1) {
			ran = append(ran, m[1])
		}
		if slices.Sort(ran); !slices.Equal(ran, c.want) {
			t.Errorf("%s %v: ran %v, want %v", c.env, c.args, ran, c.want)
		}
	}
}

// TestMakeKnows: the packages that have halves are those that make runs in both ways. Of
// another one a half would not be run at all.
func TestMakeKnows(t *testing.T) {
	if os.Getenv(child) != "" {
		return
	}
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^HALVES := (.*)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("the Makefile has no HALVES")
	}
	known := strings.Fields(string(m[1]))
	slices.Sort(known)
	if n := strings.Count(string(text), " $(HALVES) "); n != 2 {
		t.Errorf("the Makefile runs $(HALVES) %d times, want it in unit and in race", n)
	}
	var found []string
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (strings.HasPrefix(d.Name(), "node_modules") || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), "\thalves."+"Choose(") {
			name, _ := filepath.Rel(root, filepath.Dir(path))
			found = append(found, "./"+filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(found); !slices.Equal(found, known) {
		t.Errorf("%v have halves, and make knows of %v", found, known)
	}
}
