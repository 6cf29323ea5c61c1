package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// durationFlag is a length of time as people write it: 30s, 1h30m, and 7d too.
type durationFlag time.Duration

// durationVar adds a flag that takes a duration.
func durationVar(flags *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	flags.Var((*durationFlag)(d), name, usage)
	hideZero(flags.Lookup(name))
}

// hideZero keeps a meaningless default out of the help.
func hideZero(f *pflag.Flag) {
	if f.DefValue == "0s" {
		f.DefValue = "0"
	}
}

func (d *durationFlag) Type() string   { return "DURATION" }
func (d *durationFlag) String() string { return humanDuration(time.Duration(*d)) }

func (d *durationFlag) Set(s string) error {
	v, err := parseDuration(s)
	if err == nil {
		*d = durationFlag(v)
	}
	return err
}

// parseDuration is time.ParseDuration and days.
func parseDuration(s string) (time.Duration, error) {
	if number, ok := strings.CutSuffix(s, "d"); ok {
		const day = 24 * time.Hour
		if n, err := strconv.ParseFloat(number, 64); err == nil && n > -100_000 && n < 100_000 {
			return time.Duration(n * float64(day)), nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errNoDuration
	}
	return d, nil
}

var errNoDuration = errors.New("is not a duration: write 500ms, 30s, 5m, 2h or 7d")

// humanDuration is 5m instead of 5m0s.
func humanDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// flagError says what is wrong with a flag, in the command's words.
func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	help := cmd.CommandPath() + " --help lists the flags"
	switch {
	case errors.As(err, &value):
		return badValue(value)
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if shorts := unknown.GetSpecifiedShortnames(); shorts != "" {
			return &usageError{fmt.Sprintf("there is no flag -%s", name), help}
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		return &usageError{fmt.Sprintf("there is no flag --%s", name), didYouMean(name, names, "--", help)}
	case errors.As(err, &missing):
		return &usageError{fmt.Sprintf("--%s needs a value", missing.GetFlag().Name), help}
	}
	return &usageError{err.Error(), help}
}

// behindDashes is flagError for a command whose arguments may look like flags and
// belong after --.
func behindDashes(hint string) func(*cobra.Command, error) error {
	return func(cmd *cobra.Command, err error) error {
		usage := flagError(cmd, err)
		var unknown *pflag.NotExistError
		var said *usageError
		if errors.As(err, &unknown) && errors.As(usage, &said) && !strings.HasPrefix(said.hint, "did you mean") {
			said.hint = hint
		}
		return usage
	}
}

// badValue says what a flag accepts instead of the value it was given.
func badValue(err *pflag.InvalidValueError) error {
	f := err.GetFlag()
	what, hint := "", "write --"+f.Name
	switch f.Value.Type() {
	case "int", "uint", "uint64", "int64":
		what, hint = "is not a number", hint+" 20"
		if _, parseErr := strconv.ParseInt(err.GetValue(), 10, 64); parseErr == nil {
			what = "can't be negative"
		}
	case "bool":
		what, hint = "is neither true nor false", hint+" without a value, or leave it out"
	default:
		// Our own flags say what they accept.
		text := err.Unwrap().Error()
		what, hint, _ = strings.Cut(text, ": ")
	}
	return &usageError{fmt.Sprintf("--%s: %q %s", f.Name, err.GetValue(), what), hint}
}

// didYouMean suggests the names closest to a misspelt one, each prefixed with
// before; otherwise if none is close.
func didYouMean(word string, names []string, before, otherwise string) string {
	best := min(2, (len(word)+1)/3) // beyond that it is a different word
	var near []string
	for _, name := range names {
		d := distance(strings.ToLower(word), name)
		if strings.HasPrefix(name, word) {
			d = min(d, 1)
		}
		switch {
		case d < best:
			best, near = d, []string{name}
		case d == best:
			near = append(near, name)
		}
	}
	if len(near) == 0 {
		return otherwise
	}
	return "did you mean " + before + strings.Join(near, " or "+before) + "?"
}

// distance counts the letters to add, remove, replace or swap with their neighbour
// to get from one word to another.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
