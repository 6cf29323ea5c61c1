package sessionlog

import (
	"encoding/base32"
	"strings"

	"hansard"
)

const (
	// Dir is where the logs are; other files there are left alone (N1).
	Dir    = "sessions"
	Suffix = ".jsonl"
)

// A session's file name is its id in lower case, so that two ids that differ only in case
// stay two files on every file system, case-insensitive ones too. Upper case is recorded as
// a bitmap after an equals sign, which no id contains; ":" becomes "!", and a name that
// some systems reserve for devices gets an equals sign in front.
//
//	demo-1  → demo-1        Demo → demo=g0       a:b → a!b        con → =con
//
// The id itself is never used as a path (failure 51). Not a hash of it: people look for a
// log by its name, and ids in lower case, the usual ones, are their own names.

// caseBits writes the bitmap in digits and letters of one case, without padding.
var caseBits = base32.HexEncoding.WithPadding(base32.NoPadding)

// EncodeName gives the file name, without suffix, of a valid id. Different ids have
// different names.
func EncodeName(id hansard.SessionID) string {
	name := make([]byte, 0, len(id)+2)
	bits := make([]byte, (len(id)+7)/8)
	upper := 0 // bytes of bits in use: trailing zeros are dropped
	for i := 0; i < len(id); i++ {
		c := id[i]
		switch {
		case 'A' <= c && c <= 'Z':
			bits[i/8] |= 0x80 >> (i % 8)
			upper = i/8 + 1
			c += 'a' - 'A'
		case c == ':':
			c = '!'
		}
		name = append(name, c)
	}
	if upper > 0 {
		name = append(name, '=')
		name = append(name, strings.ToLower(caseBits.EncodeToString(bits[:upper]))...)
	}
	if reserved(string(name)) {
		return "=" + string(name)
	}
	return string(name)
}

// DecodeName is the id that a file name stands for; false if there is none. Anybody may put
// files into the directory, so only the exact encoding counts: two files for one id would
// be two logs of one session.
func DecodeName(name string) (hansard.SessionID, bool) {
	lower, bitmap, _ := strings.Cut(strings.TrimPrefix(name, "="), "=")
	bits, err := caseBits.DecodeString(strings.ToUpper(bitmap))
	if err != nil {
		return "", false
	}
	id := []byte(lower)
	for i, c := range id {
		switch {
		case c == '!':
			id[i] = ':'
		case i/8 < len(bits) && bits[i/8]&(0x80>>(i%8)) != 0:
			id[i] = c - 'a' + 'A'
		}
	}
	sid := hansard.SessionID(id)
	// Encoding it again refuses every other spelling: upper case, a bitmap with unused
	// bits, an equals sign that is not needed.
	if hansard.CheckID(sid) != nil || EncodeName(sid) != name {
		return "", false
	}
	return sid, true
}

// reserved tells whether Windows treats a name as a device, whatever its suffix: opening
// "con.jsonl" there opens the console.
func reserved(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	switch stem {
	case "con", "prn", "aux", "nul":
		return true
	}
	if len(stem) == 4 && (stem[:3] == "com" || stem[:3] == "lpt") {
		return '0' <= stem[3] && stem[3] <= '9'
	}
	return false
}

// Path is where the log of a name is, relative to the store's directory.
func Path(name string) string { return Dir + "/" + name + Suffix }

// IsName tells whether a file name, without suffix, stands for an id.
func IsName(name string) bool {
	_, ok := DecodeName(name)
	return ok
}
