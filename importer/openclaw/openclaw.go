// Package openclaw reads the sessions of OpenClaw for an import: the files of older versions,
// as package importer does, and the SQLite database that newer ones keep for each agent. It is
// a separate package because of the database driver.
//
// A row of the database holds the line that a file used to hold, byte for byte, so that a
// session has the same events whichever of the two it was imported from.
package openclaw

import (
	"context"
	"path/filepath"
	"strings"

	"hansard/importer"
)

// Format is OpenClaw's.
type Format struct{ importer.FileFormat }

// New is the format, which replaces the one in package importer.
func New() Format { return Format{importer.OpenClaw} }

// databaseName is how OpenClaw names the database of an agent, in agents/<agent>/agent.
const databaseName = "openclaw-agent.sqlite"

// Match recognises a database by its name and head.
func (f Format) Match(path string, head func() []byte) bool {
	if filepath.Base(path) == databaseName {
		return strings.HasPrefix(string(head()), "SQLite format 3\x00")
	}
	return f.FileFormat.Match(path, head)
}

// Identify names the source. A database holds many sessions, which its records name. Its root
// is the agent's directory: the files of cold sessions are beside it.
func (f Format) Identify(s *importer.Source, head []byte) {
	if filepath.Base(s.Path) != databaseName {
		f.FileFormat.Identify(s, head)
		return
	}
	agent := filepath.Dir(filepath.Dir(s.File()))
	s.Session = filepath.Base(agent) + "/" + databaseName
}

// Read reads a database or a file.
func (f Format) Read(ctx context.Context, in *importer.Input, emit func(importer.Record) error) error {
	if filepath.Base(in.Path) == databaseName {
		return readDatabase(ctx, in, emit)
	}
	return f.FileFormat.Read(ctx, in, emit)
}
