package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// putProbe commits a change of one row, always the same: the ticket of a claim on a session
// that can't exist.
var putProbe = `INSERT INTO hansard_waiting (id, ticket, since, seen) VALUES ('', 'probe', clock_timestamp(), clock_timestamp())
	ON CONFLICT (id, ticket) DO UPDATE SET seen = excluded.seen RETURNING ` + durably("$1")

// Probe tells whether the database takes writes, by a commit as durable as that of
// an append. It shows in no list and no log, and does not make the tables grow.
func (s *Store) Probe(ctx context.Context) error {
	if err := s.begin(ctx, "any", s.writable()); err != nil {
		return err
	}
	defer s.work.Done()
	return s.look(ctx, func(ctx context.Context) error {
		return s.reserved(ctx, func(conn *pgxpool.Conn) error {
			if _, err := conn.Exec(ctx, putProbe, !s.asked("synchronous_commit")); err != nil {
				return err
			}
			return doubt(conn.Conn().PgConn())
		})
	})
}
