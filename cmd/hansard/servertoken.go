package main

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime"
	"strings"
)

// serverToken is the token for a store that is a server: HANSARD_TOKEN, else the
// content of the file HANSARD_TOKEN_FILE, else of the file in the configuration. The
// latter is only for the store in the configuration: it must not be sent to another
// server.
func (a *app) serverToken(spec string) (string, error) {
	if token := os.Getenv(envToken); token != "" {
		return token, nil
	}
	file, err := a.applySetting("token_file")
	if err != nil || file.Value == "" {
		return "", err
	}
	if file.From == fromFile {
		c, err := a.config()
		if err != nil || !sameServer(c.values["store"].value, spec) {
			return "", err
		}
	}
	token, err := readToken(file.Value)
	if err != nil {
		return "", fmt.Errorf("reading the token of %s: %w", file.Source, err)
	}
	return token, nil
}

// sameServer tells whether two addresses are those of one server.
func sameServer(a, b string) bool {
	u, errU := url.Parse(a)
	v, errV := url.Parse(b)
	if errU != nil || errV != nil || u.Host == "" || u.Scheme == "unix" {
		return a == b
	}
	return strings.EqualFold(u.Scheme, v.Scheme) && strings.EqualFold(u.Host, v.Host)
}

// tokenMax bounds what is read of a file that turns out not to hold a token.
const tokenMax = 4 << 10

// readToken reads a token from a file that only its owner can read.
func readToken(file string) (string, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a file", file)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return "", &hinted{fmt.Errorf("%s is open to others", file), "chmod 600 " + shellQuote(file)}
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, tokenMax))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s does not hold a token", file)
	}
	return token, nil
}
