package storetest

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestBulk: the pattern selects the cases it is for, and -run and -skip divide the suite by
// it: no case is in both halves, and none is in neither.
func TestBulk(t *testing.T) {
	ran := func(flag string) (names []string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=TestNames$", flag)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s+ran (.*)$`).FindAllStringSubmatch(string(out), -1) {
			names = append(names, m[1])
		}
		return names
	}
	large, rest := ran("-test.run="+Bulk("TestNames")), ran("-test.skip="+Bulk("TestNames"))
	var all []string
	for _, c := range Cases() {
		all = append(all, c.Name)
	}
	if both := slices.Sorted(slices.Values(slices.Concat(large, rest))); !slices.Equal(both, slices.Sorted(slices.Values(all))) {
		t.Errorf("of %d cases the halves ran %d and %d", len(all), len(large), len(rest))
	}
	for _, name := range bulk {
		if !slices.ContainsFunc(large, func(c string) bool { return c == name || strings.HasPrefix(c, name+"/") }) {
			t.Errorf("no case is called %s", name)
		}
	}
	for _, name := range large {
		if !slices.ContainsFunc(bulk, func(b string) bool { return name == b || strings.HasPrefix(name, b+"/") }) {
			t.Errorf("%s is among them", name)
		}
	}
}

// TestNames has the names of the cases, and does nothing.
func TestNames(t *testing.T) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { t.Logf("\nran %s", c.Name) })
	}
}
