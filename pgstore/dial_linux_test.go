package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"hansard"
	"hansard/internal/pgtest"
)

// clientSide returns the settings of our end of a connection, as the kernel has them.
func clientSide(t *testing.T, c net.Conn) (settings map[string]int) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	settings = make(map[string]int)
	failed := raw.Control(func(fd uintptr) {
		for name, at := range map[string][2]int{
			"keepalives":          {unix.SOL_SOCKET, unix.SO_KEEPALIVE},
			"keepalives_idle":     {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
			"keepalives_interval": {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
			"keepalives_count":    {unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
			"tcp_user_timeout":    {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
		} {
			if settings[name], err = unix.GetsockoptInt(int(fd), at[0], at[1]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	if failed != nil {
		t.Fatal(failed)
	}
	return settings
}

// TestConnectionSettings: each end of a connection notices within seconds that the other is gone,
// and a session idle inside a transaction is ended, unless the URL says otherwise.
func TestConnectionSettings(t *testing.T) {
	t.Parallel() // with a server of its own
	// An address of this machine on which nothing else listens.
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	server := pgtest.New(t, "listen_addresses = '"+host+"'")
	server.Exec(t, "ALTER ROLE postgres SET tcp_keepalives_count = 2") // shorter than ours: it stays
	server.Exec(t, "ALTER ROLE postgres SET default_transaction_isolation = 'serializable'")
	for given, want := range map[string]string{
		"": "keepalives=1 keepalives_idle=5 keepalives_interval=2 keepalives_count=3 tcp_user_timeout=10000 | " +
			"tcp_keepalives_idle=5 tcp_keepalives_interval=2 tcp_keepalives_count=2 tcp_user_timeout=10000 idle_in_transaction_session_timeout=3s default_transaction_isolation=read committed",
		"&keepalives_idle=33&keepalives_interval=7&keepalives_count=5&tcp_user_timeout=4000&tcp_keepalives_idle=44&tcp_keepalives_count=9&idle_in_transaction_session_timeout=60000": "keepalives=1 keepalives_idle=33 keepalives_interval=7 keepalives_count=5 tcp_user_timeout=4000 | " +
			"tcp_keepalives_idle=44 tcp_keepalives_interval=2 tcp_keepalives_count=9 tcp_user_timeout=4000 idle_in_transaction_session_timeout=1min default_transaction_isolation=read committed",
	} {
		s, err := Open(t.Context(), "postgres://postgres@"+host+"/postgres?sslmode=disable"+given, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		conn, err := s.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		var got []string
		client := clientSide(t, lineOf(conn.Conn()).Conn)
		for _, name := range []string{"keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"} {
			got = append(got, fmt.Sprintf("%s=%d", name, client[name]))
		}
		got = append(got, "|")
		for _, name := range []string{"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout",
			"idle_in_transaction_session_timeout", "default_transaction_isolation"} {
			var value string
			if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value); err != nil {
				t.Fatal(err)
			}
			got = append(got, name+"="+value)
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("with %q the settings are\n%s, want\n%s", given, got, want)
		}
	}
}

// TestBadConnectionSettings: a setting that is not a number is reported as such, before anything
// is tried.
func TestBadConnectionSettings(t *testing.T) {
	for _, given := range []string{"keepalives=yes", "keepalives_idle=-1", "tcp_user_timeout=10s"} {
		_, err := Open(context.Background(), "postgres://127.0.0.1/?"+given, nil)
		if !errors.Is(err, hansard.ErrInvalid) || !strings.Contains(err.Error(), given) {
			t.Errorf("with %q: %v", given, err)
		}
	}
}
