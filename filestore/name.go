package filestore

import (
	"encoding/base32"
	"strings"

	"hansard"
)

const (
	sessionsDir = "sessions"
	logSuffix   = ".jsonl"
)

// A session's file name is its id in lower case, so that two ids that differ
// only in case stay two files on every file system. Where case was lost it is
// kept as a bitmap behind an equals sign, which no id contains; ":" becomes "!",
// and a name that some systems reserve for devices gets an equals sign in front.
//
//	demo-1  → demo-1        Demo → demo=g0       a:b → a!b        con → =con

var caseBits = base32.HexEncoding.WithPadding(base32.NoPadding)

// encodeName gives the file name, without suffix, of a valid id.
func encodeName(id hansard.SessionID) string {
	name := make([]byte, 0, len(id)+2)
	bits := make([]byte, (len(id)+7)/8)
	upper := 0 // bytes of bits in use
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

// decodeName is the id a file name stands for; false when it stands for none.
func decodeName(name string) (hansard.SessionID, bool) {
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
	if hansard.CheckID(sid) != nil || encodeName(sid) != name {
		return "", false // some other spelling: there is one file per id
	}
	return sid, true
}

// reserved tells whether Windows takes a name for a device, whatever its suffix.
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

func logPath(name string) string { return sessionsDir + "/" + name + logSuffix }
