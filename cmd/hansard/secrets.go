package main

import (
	"net/url"
	"strings"
)

// Tokens and passwords come from the environment or from files: everybody on the
// machine can see a command line.
const (
	envToken     = "HANSARD_TOKEN"
	envTokenFile = "HANSARD_TOKEN_FILE"
)

// checkShown refuses a store with a secret in its name if it was given where
// everybody can see it.
func checkShown(flag, spec string) error {
	switch {
	case strings.Contains(spec, "#token="):
		return &usageError{flag + " has a token in it, which everybody on this machine can see", "put it into " + envToken + ", or into a file that " + envTokenFile + " names"}
	case withoutPassword(spec) != spec:
		return &usageError{flag + " has a password in it, which everybody on this machine can see", "put it into a password file (~/.pgpass, PGPASSFILE), or the whole URL into HANSARD_STORE"}
	}
	return nil
}

// withoutPassword is the name of a database without the password.
func withoutPassword(spec string) string {
	scheme, _ := splitScheme(spec)
	if scheme != "postgres" && scheme != "postgresql" {
		return spec
	}
	if u, err := url.Parse(spec); err == nil {
		if _, has := u.User.Password(); has {
			u.User = url.User(u.User.Username())
			spec = u.String()
		}
		if q := u.Query(); q.Has("password") || q.Has("sslpassword") {
			q.Del("password")
			q.Del("sslpassword")
			u.RawQuery = q.Encode()
			spec = u.String()
		}
	}
	return spec
}
