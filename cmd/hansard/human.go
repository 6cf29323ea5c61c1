package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// humanBytes is a size in at most 8 characters: 812 B, 3.4 KB, 1.2 GB.
func humanBytes(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	value, units := float64(n)/1000, "KMGTPE"
	for value >= 999.5 && len(units) > 1 {
		value, units = value/1000, units[1:]
	}
	if value < 9.95 {
		return fmt.Sprintf("%.1f %cB", value, units[0])
	}
	return fmt.Sprintf("%.0f %cB", value, units[0])
}

// humanCount puts commas into a number.
func humanCount[T ~int | ~int64 | ~uint64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural is "1 event", "2 events".
func plural[T ~int | ~int64 | ~uint64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return humanCount(n) + " " + noun + "s"
}

// humanAgo is how long ago t was, or its date if that is long ago.
func humanAgo(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero(): // unknown: the session is too damaged
		return "?"
	case d < -time.Minute: // some clock is wrong; show what it says
		return t.Local().Format("2006-01-02 15:04")
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	case d < 30*24*time.Hour:
		return fmt.Sprintf("%d d ago", int(d.Hours()/24))
	}
	return t.Local().Format("2006-01-02")
}

// humanTime is a local time as short as its age allows.
func humanTime(now, t time.Time) string {
	now, t = now.Local(), t.Local()
	switch {
	case now.YearDay() == t.YearDay() && now.Year() == t.Year():
		return t.Format("15:04:05")
	case now.Year() == t.Year():
		return t.Format("Jan _2 15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// humanLabels is k=v k=v, sorted.
func humanLabels(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, escapeLine(k+"="+labels[k]))
	}
	return strings.Join(parts, " ")
}
