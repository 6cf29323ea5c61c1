package main

import (
	"maps"
	"strings"
	"testing"
)

// TestTOML: settings are parsed as TOML specifies; anything that is not a setting is refused with
// its line.
func TestTOML(t *testing.T) {
	for line, want := range map[string]string{
		`k = "v"`: "v", "\tk=\"v\"\t": "v", `k = 'C:\dir'`: `C:\dir`, `"k" = "quoted key"`: "quoted key", `k = "" # none`: "",
		`k = "a\t\"b\"\\\u00e9\U0001F600" #x`: "a\t\"b\"\\é😀", `k = "# no comment"`: "# no comment", `k = '"'`: `"`, "k = \"v\"\r": "v",
	} {
		got, err := parseTOML("f", "# first\n\n"+line+"\n")
		if err != nil || len(got) != 1 || got[0].key != "k" || got[0].value != want || got[0].number != 3 {
			t.Errorf("%s: %+v, %v, want %q", line, got, err, want)
		}
	}
	for _, line := range []string{
		`k`, `k =`, `k = v`, `k = 1`, `k = true`, `k = ["a"]`, `[k]`, `k = "a" "b"`, `k = "a`, `k = 'a`, `k = """a"""`, `k = '''a'''`,
		`k = "\x41"`, `k = "\a"`, `k = "\ud800"`, `= "v"`, `k.l = "v"`, "k = \"\x01\"", "k = \"\xff\"", "\"k\" = \"v\"\nk = 'v'", `é = "v"`,
	} {
		_, err := parseTOML("f", "\n"+line)
		if err == nil || !strings.HasPrefix(err.Error(), "f, line ") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// FuzzTOML: setting and removing a key changes only that key.
func FuzzTOML(f *testing.F) {
	f.Add("# c\nstore = \"a\" # b\n\nauthor = 'x'", "v")
	f.Add("\uFEFFstore='\\'\r\n", "é \"\\ \U0001F600")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, content, value string) {
		before, err := parseTOML("f", content)
		if err != nil || strings.ContainsFunc(value, isControl) || strings.ToValidUTF8(value, "") != value {
			return
		}
		for _, key := range []string{"store", "new"} {
			set, err := setTOML("f", content, key, &value)
			if err != nil {
				t.Fatal(err)
			}
			want := tomlValues(before)
			want[key] = value
			if after, err := parseTOML("f", set); err != nil || !maps.Equal(tomlValues(after), want) {
				t.Fatalf("set %s to %q:\n%q\n%q\n%v", key, value, content, set, err)
			}
			removed, err := setTOML("f", set, key, nil)
			if err != nil {
				t.Fatal(err)
			}
			delete(want, key)
			if after, err := parseTOML("f", removed); err != nil || !maps.Equal(tomlValues(after), want) {
				t.Fatalf("remove %s:\n%q\n%q\n%v", key, set, removed, err)
			}
		}
	})
}

func tomlValues(lines []tomlLine) map[string]string {
	values := map[string]string{}
	for _, l := range lines {
		values[l.key] = l.value
	}
	return values
}
