package main

import (
	"strconv"

	"hansard"
)

// turnName is a grant for people: its number, which is enough to tell the turns
// of a session apart.
func turnName(g hansard.Grant) string {
	if n := g.Number(); n > 0 {
		return strconv.FormatUint(n, 10)
	}
	return escapeLine(string(g))
}
