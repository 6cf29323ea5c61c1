package filestore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"hansard"
	"hansard/filestore/internal/sessionlog"
)

// damages is the table: the ways to damage a log, and the logs that result.
var damages = []struct {
	name    string
	logs    []hansard.SessionID
	every   int // one in this many states is also verified, written to and repaired
	corrupt func(w *written, sm *sample, try func(what string, log []byte))
}{
	{"truncated", []hansard.SessionID{"small", "Mixed:1", "other", "made"}, 4, truncateEverywhere},
	{"bit", []hansard.SessionID{"small", "made"}, 8, flipEveryBit},
	{"byte", []hansard.SessionID{"Mixed:1", "other"}, 16, flipEveryByte},
	{"nul", []hansard.SessionID{"small", "Mixed:1"}, 8, nulRuns},
	{"lines", []hansard.SessionID{"small", "Mixed:1"}, 4, moveLines},
	{"spliced", []hansard.SessionID{"Mixed:1"}, 8, spliceLines},
	{"garbage", []hansard.SessionID{"small", "Mixed:1", "made"}, 1, appendGarbage},
	{"whole", []hansard.SessionID{"small", "Mixed:1", "made"}, 1, changeWhole},
}

func truncateEverywhere(w *written, _ *sample, try func(string, []byte)) {
	for n := range w.log {
		try(fmt.Sprintf("truncated to %d of %d", n, len(w.log)), w.log[:n])
	}
}

func flipEveryBit(w *written, _ *sample, try func(string, []byte)) {
	for i := range w.log {
		for bit := range 8 {
			try(fmt.Sprintf("bit %d of byte %d flipped", bit, i), changed(w.log, i, w.log[i]^1<<bit))
		}
	}
}

func flipEveryByte(w *written, _ *sample, try func(string, []byte)) {
	for i, c := range w.log {
		for _, to := range []byte{c ^ 1, c ^ 0x20, c ^ 0x80, 0, '\n', '"'} {
			try(fmt.Sprintf("byte %d became %q", i, to), changed(w.log, i, to))
		}
	}
}

func changed(log []byte, i int, c byte) []byte {
	b := bytes.Clone(log)
	b[i] = c
	return b
}

func nulRuns(w *written, _ *sample, try func(string, []byte)) {
	for _, n := range []int{1, 16, 512, 4096} {
		for at := 0; at < len(w.log); at += 7 {
			b := bytes.Clone(w.log)
			clear(b[at:min(at+n, len(b))])
			try(fmt.Sprintf("%d NULs at %d", n, at), b)
		}
		try(fmt.Sprintf("%d NULs behind the end", n), append(bytes.Clone(w.log), make([]byte, n)...))
	}
}

func linesOf(log []byte) [][]byte {
	l := bytes.SplitAfter(log, []byte("\n"))
	return l[:len(l)-1]
}

func moveLines(w *written, _ *sample, try func(string, []byte)) {
	lines := linesOf(w.log)
	join := func(parts ...[][]byte) []byte { return bytes.Join(slices.Concat(parts...), nil) }
	for i := range lines {
		for n := 1; i+n <= len(lines) && n <= 3; n++ {
			try(fmt.Sprintf("%d lines from %d removed", n, i), join(lines[:i], lines[i+n:]))
			try(fmt.Sprintf("%d lines from %d doubled", n, i), join(lines[:i+n], lines[i:]))
		}
		for j := i + 1; j < len(lines); j++ {
			swapped := slices.Clone(lines)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			try(fmt.Sprintf("lines %d and %d swapped", i, j), join(swapped))
			try(fmt.Sprintf("line %d moved behind %d", i, j), join(lines[:i], lines[i+1:j+1], lines[i:i+1], lines[j+1:]))
		}
	}
}

func spliceLines(w *written, sm *sample, try func(string, []byte)) {
	lines := linesOf(w.log)
	for _, from := range []*written{sm.logs["other"], w} {
		for i := range lines {
			for j, l := range linesOf(from.log) {
				put := slices.Insert(slices.Clone(lines), i, l)
				try(fmt.Sprintf("line %d of %s put before line %d", j, from.id, i), bytes.Join(put, nil))
				instead := slices.Clone(lines)
				instead[i] = l
				try(fmt.Sprintf("line %d of %s instead of line %d", j, from.id, i), bytes.Join(instead, nil))
			}
		}
	}
}

func appendGarbage(w *written, sm *sample, try func(string, []byte)) {
	rng := rand.New(rand.NewPCG(3, 3))
	noise := make([]byte, 300)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for _, g := range []string{"x", "\n", "\n\n", "{}", "{}\n", `{"seq":1}` + "\n", " ", "\r\n", "\x00", `{"seq":`, `{"seq":99,"time":"`,
		`{"seq":99}`, `{"hansard":2,`, "\xef\xbb\xbf", string(noise), string(noise) + "\n", `{"seq":9` + strings.Repeat("x", 9000),
		`{"seq":9` + strings.Repeat("x", 9000) + "\x00\x00"} {
		for _, e := range w.ends {
			try(fmt.Sprintf("%q behind byte %d", g[:min(len(g), 20)], e.at), append(bytes.Clone(w.log[:e.at]), g...))
		}
		try(fmt.Sprintf("%q in front", g[:min(len(g), 20)]), append([]byte(g), w.log...))
		try(fmt.Sprintf("%q instead", g[:min(len(g), 20)]), []byte(g))
	}
	try("the log behind itself", append(bytes.Clone(w.log), w.log...))
	try("another log behind it", append(bytes.Clone(w.log), sm.logs["other"].log...))
}

func changeWhole(w *written, sm *sample, try func(string, []byte)) {
	try("the log of another session", sm.logs["other"].log)
	try("the log of another session behind a line", append([]byte("x\n"), sm.logs["other"].log...))
	try("CRLF", bytes.ReplaceAll(w.log, []byte("\n"), []byte("\r\n")))
	try("CR", bytes.ReplaceAll(w.log, []byte("\n"), []byte("\r")))
	try("BOM", append([]byte("\xef\xbb\xbf"), w.log...))
	try("upper case", bytes.ToUpper(w.log))
	try("pretty", bytes.ReplaceAll(w.log, []byte(`,"`), []byte(`, "`)))
	try("version 1", bytes.Replace(w.log, []byte(`{"hansard":2`), []byte(`{"hansard":1`), 1))
	try("version 3", bytes.Replace(w.log, []byte(`{"hansard":2`), []byte(`{"hansard":3`), 1))
	try("version 20", bytes.Replace(w.log, []byte(`{"hansard":2`), []byte(`{"hansard":20`), 1))
	try("all NUL", make([]byte, len(w.log)))
	try("a page of NUL", make([]byte, 4096))
	try("without newlines", bytes.ReplaceAll(w.log, []byte("\n"), nil))
	try("another title", bytes.Replace(w.log, []byte("new"), []byte("old"), 1))
	for _, e := range w.ends { // edited by hand, with a matching checksum
		lines := linesOf(w.log[:e.at])
		last := lines[len(lines)-1]
		edited := sessionlog.AppendSuffix(bytes.Replace(last[:len(last)-1-sessionlog.SuffixWidth], []byte(`"`), []byte(`"x":1,"`), 1), 0, 1)
		try(fmt.Sprintf("line %d edited, its checksum right and its place in the chain not", len(lines)),
			append(bytes.Join(lines[:len(lines)-1], nil), edited...))
	}
}
