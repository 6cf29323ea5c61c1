package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hansard"
)

// defaultConns is how many connections a store uses when the URL does not say.
const defaultConns = 16

// config returns the pool's configuration for a URL, and the dialer for its connections.
func config(url string) (*pgxpool.Config, *dialer, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The error may quote the URL, though not its password.
		return nil, nil, &hansard.InvalidError{Field: "store", Reason: err.Error()}
	}
	own, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, nil, &hansard.InvalidError{Field: "store", Reason: err.Error()}
	}
	if _, given := own.RuntimeParams["pool_max_conns"]; !given {
		cfg.MaxConns = defaultConns
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "hansard"
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectPatience
	}
	for name, value := range formats {
		cfg.ConnConfig.RuntimeParams[name] = value
	}
	d, err := newDialer(cfg.ConnConfig)
	if err != nil {
		return nil, nil, err
	}
	cfg.ConnConfig.DialFunc = d.dial
	cfg.ConnConfig.OnNotice = noticeDoubt
	cfg.AfterConnect = settle
	return cfg, d, nil
}

// formats are how texts and times are exchanged. Go has texts in UTF-8: were they announced as
// something else, because the database or the role has another default, the server would convert
// what it has to store byte for byte. Poolers know these settings, and keep them for each client.
var formats = map[string]string{"client_encoding": "UTF8", "datestyle": "ISO"}

// ownSettings are the settings every connection of ours needs, whatever the defaults of
// the database or the role are. Settings given in the URL are kept, except the isolation
// level, and so are timeouts that are already shorter.
var ownSettings = []struct{ name, value string }{
	// Each statement sees what is committed when it begins.
	{"default_transaction_isolation", "read committed"},
	// A process that is cut off does not keep its locks, nor its snapshot.
	{"idle_in_transaction_session_timeout", milliseconds(idleInside)},
	{"tcp_keepalives_idle", seconds(keepaliveIdle)},
	{"tcp_keepalives_interval", seconds(keepaliveInterval)},
	{"tcp_keepalives_count", fmt.Sprint(keepaliveCount)},
	{"tcp_user_timeout", milliseconds(userTimeout)},
	// Every statement can use an index, in index order. A plan that was made while a table
	// was empty would scan all of it, until PostgreSQL notices that the table has grown: a
	// minute or two of appends.
	{"enable_seqscan", "off"},
	{"enable_bitmapscan", "off"},
	// Generic plans, made without knowing the parameters, are right for every statement:
	// TestPlans. Because arrays look shorter when they are known, PostgreSQL would replan
	// statements with many of them each time, which costs more than executing them.
	{"plan_cache_mode", "force_generic_plan"},
	// A search by terms has no plan but one of those switched off above. So it looks so
	// expensive that it would be compiled, which takes a thousand times as long as the search.
	{"jit", "off"},
}

func seconds(d time.Duration) string      { return fmt.Sprint(int64(d / time.Second)) }
func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// settleConnection applies the settings if the connection leads to the server process with
// this pid, and returns the actual pid. If the two differ there is a connection pooler in
// between: then the settings would apply to whichever client gets that process next, and
// each transaction has to make its own.
var settleConnection = func() string {
	var rows []string
	for _, s := range ownSettings {
		rows = append(rows, fmt.Sprintf("('%s', '%s')", s.name, s.value))
	}
	return `SELECT set_config(s.name, o.value, false) FROM pg_settings s JOIN (VALUES ` + strings.Join(rows, ", ") + `) AS o(name, value) ON o.name = s.name
	WHERE pg_backend_pid() = %d AND (s.source <> 'client' OR s.name = 'default_transaction_isolation')
		AND CASE s.vartype WHEN 'integer' THEN s.setting::bigint = 0 OR s.setting::bigint > o.value::bigint ELSE true END;
	SELECT pg_backend_pid()`
}()

// settle makes a new connection one of ours.
func settle(ctx context.Context, c *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	pid := c.PgConn().PID()
	results, err := c.PgConn().Exec(ctx, fmt.Sprintf(settleConnection, pid)).ReadAll()
	if err != nil {
		return err
	}
	if l := lineOf(c); l != nil && len(results) == 2 && len(results[1].Rows) == 1 && string(results[1].Rows[0][0]) == fmt.Sprint(pid) {
		l.pid.Store(pid)
	}
	return nil
}

// absentFor is how long Open waits if nothing listens at the address: the database may be
// just starting, or the address is wrong.
const absentFor = 3 * time.Second

// whenStarted calls f, and retries while the database is not up yet, for a bounded time.
func whenStarted(ctx context.Context, patience time.Duration, f func(context.Context) error) error {
	began, pause := time.Now(), 20*time.Millisecond
	for {
		err := f(ctx)
		bound := time.Duration(0)
		switch c := code(err); {
		case err == nil:
			return nil
		case strings.HasPrefix(c, shutDown), c == tooManyConns:
			bound = patience
		case c != "":
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, fs.ErrNotExist), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			bound = min(patience, absentFor)
		}
		if time.Since(began)+pause > bound {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
			pause = min(2*pause, 500*time.Millisecond)
		}
	}
}
