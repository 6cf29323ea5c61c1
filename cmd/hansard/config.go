package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"hansard"
	"hansard/engine"
)

// setting is something that the configuration file may set.
type setting struct {
	key   string
	flag  string // empty if there is none
	env   string
	about string
	path  bool                     // a path: relative ones depend on the current directory, and are refused
	check func(value string) error // what else may be wrong with a value
}

// The places a setting comes from, in order of precedence.
const (
	fromFlag    = "flag"
	fromEnv     = "environment"
	fromFile    = "file"
	fromDefault = "default"
)

var settings = []setting{
	{key: "store", flag: "--store", env: envStore, path: true, about: "the store: a directory, http://HOST:PORT or postgres://…"},
	{key: "token_file", env: envTokenFile, path: true, about: "the file with the token for a store that is a server"},
	{key: "author", flag: "--author", env: "HANSARD_AUTHOR", check: checkAuthor, about: "who you are, for what you append"},
	{key: "colour", flag: "--colour", env: "NO_COLOR", check: checkColour, about: "auto, always or never"},
}

func checkAuthor(name string) error {
	return engine.CheckBatch(&hansard.Batch{Events: []hansard.Event{{Author: name, Data: hansard.Text("")}}})
}

func checkColour(when string) error {
	switch when {
	case colourAuto, colourAlways, colourNever:
		return nil
	}
	return fmt.Errorf("%q is none of auto, always and never", when)
}

// findSetting is the setting of a key.
func findSetting(key string) (setting, error) {
	var keys []string
	for _, s := range settings {
		if s.key == key {
			return s, nil
		}
		keys = append(keys, s.key)
	}
	return setting{}, &usageError{fmt.Sprintf("there is no setting %q", key),
		didYouMean(key, keys, "", "there are: "+strings.Join(keys, ", "))}
}

// checked is a value ready for use, with the home directory for ~, or what is wrong
// with it.
func (s setting) checked(value string) (string, error) {
	if value == "" {
		return "", errors.New("it is empty; leave it out instead")
	}
	if s.path {
		if rest, ok := strings.CutPrefix(value, "~/"); ok {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", err
			}
			value = filepath.Join(home, rest)
		}
		if scheme, rest := splitScheme(value); (scheme == "" || scheme == "file" && !strings.HasPrefix(rest, "//")) && !filepath.IsAbs(rest) {
			return "", fmt.Errorf("%q depends on the current directory; write the whole path, or ~/…", value)
		}
	}
	if s.check != nil {
		if err := s.check(value); err != nil {
			return "", err
		}
	}
	return value, nil
}

// config is what the configuration file says.
type config struct {
	file   string // "" if there is no place for one
	values map[string]configured
}

type configured struct {
	value string
	line  int
}

// configMax bounds what is read of a file that turns out not to be ours.
const configMax = 64 << 10

// config reads the configuration file, once. It may be missing.
func (a *app) config() (*config, error) {
	if a.configured != nil {
		return a.configured, nil
	}
	c := &config{file: configFile(), values: map[string]configured{}}
	content, err := c.read()
	if err != nil {
		return nil, err
	}
	lines, err := parseTOML(c.file, content)
	if err != nil {
		return nil, err
	}
	for _, l := range lines {
		s, err := findSetting(l.key)
		if err != nil {
			return nil, tomlError(c.file, l.number, err.Error(), hansard.Hint(err))
		}
		value, err := s.checked(l.value)
		if err != nil {
			return nil, tomlError(c.file, l.number, fmt.Sprintf("%s: %v", l.key, err), l.key+" is "+s.about)
		}
		c.values[l.key] = configured{value, l.number}
	}
	a.configured = c
	return c, nil
}

func (c *config) read() (string, error) {
	if c.file == "" {
		return "", nil
	}
	f, err := os.Open(c.file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) && elsesHome(c.file) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the configuration: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, configMax+1))
	if err != nil {
		return "", fmt.Errorf("reading the configuration: %w", err)
	}
	if len(content) > configMax {
		return "", fmt.Errorf("reading the configuration: %s is longer than %d bytes", c.file, configMax)
	}
	return string(content), nil
}

// elsesHome says that the default file is in a directory that this user may not
// enter: HOME belongs to another user, left over from su or a service manager, and
// a file there is not meant for this user.
func elsesHome(file string) bool {
	_, err := os.Lstat(file)
	return errors.Is(err, fs.ErrPermission) && os.Getenv("HANSARD_CONFIG") == ""
}

// configFile is where the configuration is: HANSARD_CONFIG, else the user's
// configuration directory.
func configFile() string {
	if file := os.Getenv("HANSARD_CONFIG"); file != "" {
		return file
	}
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the XDG specification says to ignore relative paths
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".config")
		if user, err := os.UserConfigDir(); runtime.GOOS == "windows" && err == nil {
			dir = user
		}
	}
	return filepath.Join(dir, "hansard", "config.toml")
}

// applied is the effective value of a setting, and where it comes from.
type applied struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	From    string `json:"from"` // flag, environment, file, default
	// Source is the flag, the variable, or the file with its line.
	Source string `json:"source,omitempty"`
}

// apply finds the value of a setting: a flag's, else the environment's, else the
// file's, else the default.
func (a *app) apply(key, flag string, flagSet bool) (applied, error) {
	s, err := findSetting(key)
	if err != nil {
		return applied{}, err
	}
	if flagSet {
		return applied{key, flag, fromFlag, s.flag}, nil
	}
	if value := os.Getenv(s.env); value != "" {
		if key == "colour" { // NO_COLOR has any value
			value = colourNever
		}
		return applied{key, value, fromEnv, s.env}, nil
	}
	c, err := a.config()
	if err != nil {
		return applied{}, err
	}
	if v, ok := c.values[key]; ok {
		return applied{key, v.value, fromFile, fmt.Sprintf("%s:%d", c.file, v.line)}, nil
	}
	value := ""
	switch key {
	case "store":
		if value, err = defaultStore(); err != nil {
			return applied{}, err
		}
	case "colour":
		value = colourAuto
	}
	return applied{key, value, fromDefault, ""}, nil
}
