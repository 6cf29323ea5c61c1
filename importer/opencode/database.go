package opencode

import (
	"context"
	"fmt"

	"hansard/importer"
	"hansard/importer/internal/database"
)

// readDatabase reads all sessions of a database.
func readDatabase(ctx context.Context, in *importer.Input, emit func(importer.Record) error) error {
	return database.Read(ctx, in, emit, func(db *database.DB) error { return (&sessions{db}).read() })
}

// sessions are those of a database.
type sessions struct{ *database.DB }

func (d *sessions) read() error {
	tables, err := d.Tables()
	if err != nil {
		return err
	}
	if !tables["session"] {
		return fmt.Errorf("it has no table session")
	}
	var all []database.Row
	err = d.Rows(`SELECT * FROM session ORDER BY id`, nil, func(row database.Row) error {
		all = append(all, row)
		return nil
	})
	if err != nil {
		return err
	}
	for _, row := range all {
		r := &reader{emit: d.Emit, session: session{id: row.Text("id"), parent: row.Text("parent_id"), title: row.Text("title"), directory: row.Text("directory"), version: row.Text("version")}}
		// Only the columns that describe the session are kept: the counts in the
		// row change with every message.
		about := importer.JSON(map[string]any{"id": r.id, "parent_id": r.parent, "title": r.title, "directory": r.directory, "version": r.version, "project_id": row["project_id"]})
		if err := r.about(milliseconds(row.Number("time_created")), about); err != nil {
			return err
		}
		if err := d.history(r, tables); err != nil {
			return err
		}
	}
	return nil
}

// history reads the messages of one session.
func (d *sessions) history(r *reader, tables map[string]bool) error {
	if tables["message"] && tables["part"] {
		if err := d.messages(r); err != nil {
			return err
		}
	}
	if !tables["session_message"] {
		return nil
	}
	return d.Rows(`SELECT * FROM session_message WHERE session_id = ? ORDER BY seq`, []any{r.id}, func(row database.Row) error {
		return r.entry(row.Text("id"), row.Text("type"), milliseconds(row.Number("time_created")), []byte(row.Text("data")))
	})
}

// pageRows is how many messages are read before their parts are.
const pageRows = 500

func (d *sessions) messages(r *reader) error {
	for after := ""; ; {
		var page []database.Row
		err := d.Rows(`SELECT id, time_created, data FROM message WHERE session_id = ? AND id > ? ORDER BY id LIMIT ?`, []any{r.id, after, pageRows}, func(row database.Row) error {
			page = append(page, row)
			return nil
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, row := range page {
			after = row.Text("id")
			role, err := r.message(after, milliseconds(row.Number("time_created")), []byte(row.Text("data")))
			if err != nil {
				return err
			}
			err = d.Rows(`SELECT id, time_created, data FROM part WHERE message_id = ? ORDER BY id`, []any{after}, func(row database.Row) error {
				return r.part(row.Text("id"), role, milliseconds(row.Number("time_created")), []byte(row.Text("data")))
			})
			if err != nil {
				return err
			}
		}
	}
}
