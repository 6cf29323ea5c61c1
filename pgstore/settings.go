package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Warnings lists the settings of the database that break promises of a Store, a
// sentence each. It is empty when there are none.
func (s *Store) Warnings(ctx context.Context) (warnings []string, err error) {
	if err := s.begin(ctx, "any"); err != nil {
		return nil, err
	}
	defer s.work.Done()
	err = s.look(ctx, func(ctx context.Context) error {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		warnings, err = examine(ctx, conn.Conn(), !s.asked("synchronous_commit"))
		return err
	})
	return warnings, err
}

const readSettings = `SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'),
	current_setting('synchronous_standby_names')`

// readReplicas counts all standbys, the ones that commits do not wait for, and the ones in a
// quorum, some of which commits wait for. A user without the right to see the state of
// standbys only sees that they exist.
const readReplicas = `SELECT count(*), count(*) FILTER (WHERE sync_state NOT IN ('sync', 'quorum')), count(*) FILTER (WHERE sync_state = 'quorum')
	FROM pg_stat_replication`

// examine checks the settings. With durable our own transactions switch synchronous_commit
// on, so that it does not matter that the setting is off.
func examine(ctx context.Context, conn *pgx.Conn, durable bool) (warnings []string, err error) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	var commit, fsync, fullPages, names string
	if err := conn.QueryRow(ctx, readSettings).Scan(&commit, &fsync, &fullPages, &names); err != nil {
		return nil, err
	}
	if durable && commit == "off" {
		commit = "on"
	}
	if fsync != "on" {
		warn("fsync is off: a crash of the machine can damage or lose everything")
	}
	if fullPages != "on" {
		warn("full_page_writes is off: a power cut can damage pages, unless the file system rules that out")
	}
	if commit == "off" {
		warn("synchronous_commit is off: a crash loses what was acknowledged in the last moments before it")
	}
	var replicas, asynchronous, quorum, enough int
	if err := conn.QueryRow(ctx, readReplicas).Scan(&replicas, &asynchronous, &quorum); err != nil {
		if code(err) != "" {
			return warnings, nil // this server says nothing about standbys
		}
		return nil, err
	}
	if _, err := fmt.Sscanf(strings.ToUpper(names), "ANY %d", &enough); err != nil {
		enough = quorum // every one of them
	}
	switch {
	case names != "" && (commit == "local" || commit == "off"):
		warn("synchronous_commit is %s: commits do not wait for the synchronous standbys %s; failing over loses what was acknowledged in the last moments", commit, names)
	case names != "" && asynchronous == replicas:
		warn("no synchronous standby is connected (synchronous_standby_names is %s): every write waits until there is one", names)
	case names != "" && commit == "remote_write":
		warn("synchronous_commit is remote_write: if primary and standby crash at once, what was acknowledged in the last moments is lost")
	case names == "" && replicas > 0:
		warn("there are standbys (%d) and synchronous_standby_names is empty: failing over to one loses what was acknowledged in the last moments", replicas)
	case names != "" && asynchronous > 0:
		warn("%d of %d standbys are not synchronous: failing over to one of these loses what was acknowledged in the last moments", asynchronous, replicas)
	case quorum > enough:
		warn("commits wait for any %d of %d standbys: failing over to any but the most up-to-date one loses what was acknowledged in the last moments", enough, quorum)
	}
	return warnings, nil
}
