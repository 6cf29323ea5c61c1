package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hansard"
)

// The SQLSTATE codes of the errors we tell apart.
const (
	uniqueViolation = "23505"
	tableExists     = "42P07"
	noRight         = "42501"
	readOnlyServer  = "25006" // a standby
	divisionByZero  = "22012"
	diskFull        = "53100"
	tooManyConns    = "53300"
	commitUnknown   = "40003" // sent by distributed databases that speak PostgreSQL's protocol
	queryCanceled   = "57014"
	noLock          = "55P03"
	noSchema        = "3F000"
	noDatabase      = "3D000"
	startingUp      = "57P03"
	shutDown        = "57P" // prefix: shutting down, or starting
	protocolError   = "08P01"
	statementExists = "42P05" // a prepared statement of this name
	noStatement     = "26000"
	noEntry         = "28" // prefix: the user, the password or the address was refused
	plainWarning    = "01000"
)

// UnavailableError says that the database could not be reached, or not in time.
// Nothing was stored. It matches [hansard.ErrBusy]: trying again later helps.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("the database is unavailable: %v", e.Err)
}
func (e *UnavailableError) Unwrap() error { return e.Err }

// Is makes an UnavailableError match hansard.ErrBusy.
func (e *UnavailableError) Is(target error) bool { return target == hansard.ErrBusy }

// Hint says what to do next.
func (e *UnavailableError) Hint() string {
	var connect *pgconn.ConnectError
	switch c := code(e.Err); {
	case strings.HasPrefix(c, noEntry):
		return "check the user and the password: in the URL, PGPASSWORD or ~/.pgpass"
	case c == noDatabase:
		return "make the database with createdb, or name another one in the URL"
	case c == readOnlyServer:
		return "this server only reads, as a standby does: name the primary, or several hosts and target_session_attrs=read-write"
	case c == tooManyConns:
		return "it takes no more connections: raise its max_connections, or lower pool_max_conns in the URL of each process that uses it"
	case c == startingUp:
		return "it is starting, or ending: try again in a moment"
	case c == protocolError && strings.Contains(e.Err.Error(), "startup parameter"):
		return "a pool of connections, such as PgBouncer, does not know a setting in the URL: leave it out, or name it in its ignore_startup_parameters"
	case errors.As(e.Err, &connect):
		return "check the host and the port in the URL; if they are right, try again when the database is up"
	}
	return "try again; the store reconnects automatically once the database answers"
}

// hinted is an error with a hint what to do about it.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Hint says what to do next.
func (h *hinted) Hint() string { return h.hint }

// code is the SQLSTATE of an error, empty if it is not from the database.
func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

func isRight(err error) bool { return code(err) == noRight }

// isDown tells whether an error is about the connection or the server as a whole,
// so that the same call may work a moment later. A statement that ended this way
// may have been executed.
func isDown(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch {
		case pg.Code == commitUnknown, pg.Code == tooManyConns, pg.Code == readOnlyServer:
			return true
		case strings.HasPrefix(pg.Code, "08"), strings.HasPrefix(pg.Code, shutDown): // connection exceptions; shutting down, crashing, starting
			return true
		case pg.Code == "":
			return true // from a proxy in between, which does not say what became of the statement
		}
		severity := cmp.Or(pg.SeverityUnlocalized, pg.Severity) // the latter is in the server's language
		return severity == "FATAL" || severity == "PANIC"
	}
	var connect *pgconn.ConnectError
	var network net.Error
	var early *unsent
	return errors.Is(err, errDoubt) || errors.As(err, &early) || errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err) || isClosedConn(err)
}

// isClosedConn tells whether a connection was found closed: pgx exports no error for it.
func isClosedConn(err error) bool { return err != nil && err.Error() == "conn closed" }

// unsent is an error from before there was a connection.
type unsent struct{ error }

func (u *unsent) Unwrap() error { return u.error }

// neverSent tells whether an error is from before the server could do anything.
func neverSent(err error) bool {
	var connect *pgconn.ConnectError
	var early *unsent
	return errors.As(err, &connect) || errors.As(err, &early) || pgconn.SafeToRetry(err) || code(err) == tooManyConns || code(err) == readOnlyServer
}

// leaveStandby closes a connection whose server has stopped taking writes: it has
// become a standby, and the next connection finds who is the primary now.
func leaveStandby(c *pgx.Conn, err error) {
	if code(err) != readOnlyServer {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.Close(ctx) // it is not used again even if this fails
}

// isRace tells whether a statement lost a race against another one and was rolled back: it
// can be sent again at once. A unique violation is such a loss too: the retry finds the row
// that has the key.
func isRace(err error) bool {
	c := code(err)
	return c == uniqueViolation || len(c) == 5 && c[:2] == "40" && c != commitUnknown
}

// translate maps an error of the database to one of the contract, if there is one for it.
func translate(err error) error {
	switch c := code(err); {
	case err == nil:
		return nil
	case c == diskFull:
		return fmt.Errorf("%w: %w", hansard.ErrNoSpace, err)
	case c == noRight:
		return &hinted{fmt.Errorf("%w: %w", hansard.ErrReadOnly, err), "grant the role the rights that docs/postgres.md lists"}
	case c == statementExists, c == noStatement:
		return &hinted{fmt.Errorf("%w: a pool of connections is in between that gives each transaction to another process of the server: %w", hansard.ErrUnsupported, err),
			"add default_query_exec_mode=exec to the URL, or have the pool keep sessions (PgBouncer: pool_mode=session): see docs/postgres.md"}
	case isDown(err), c == queryCanceled, c == noLock:
		return &UnavailableError{err}
	}
	return err
}

// errDoubt is the error for a commit that PostgreSQL reports as done although it gave up
// waiting for the synchronous standby: somebody cancelled the statement, or it took too
// long. PostgreSQL says so only in a warning; our statements cause no other warnings.
var errDoubt = errors.New("the commit did not wait for the synchronous standby")

const doubtful = "hansard.doubt"

// noticeDoubt records the warning on the connection it came from. It is called in the
// goroutine that uses the connection, while a statement is executed.
func noticeDoubt(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Code == plainWarning {
		c.CustomData()[doubtful] = true
	}
}

// doubt returns errDoubt if there was a warning since the last call.
func doubt(c *pgconn.PgConn) error {
	data := c.CustomData()
	if data[doubtful] == nil {
		return nil
	}
	delete(data, doubtful)
	return errDoubt
}
