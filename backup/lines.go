package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// line is a line of a backup that is not an event: it has one member, whose name is
// its type. Members that a later version adds are ignored.
type line struct {
	Backup     *head        `json:"backup,omitempty"`     // the first line
	Session    *sessionLine `json:"session,omitempty"`    // a session begins
	Attachment *attachLine  `json:"attachment,omitempty"` // its bytes are in the blocks that follow
	Part       *partLine    `json:"part,omitempty"`       // its events are in the lines that follow
	Done       *Entry       `json:"done,omitempty"`       // the session ends
	End        *Totals      `json:"end,omitempty"`        // in the end block
}

// head identifies a backup.
type head struct {
	Format int `json:"format"`
	// Number is 0 for a full backup, and one more than that of its base for an
	// increment. Base is the digest of the backup that it is an increment of.
	Number  int       `json:"number"`
	Base    string    `json:"base,omitempty"`
	Started time.Time `json:"started"`
	Store   string    `json:"store,omitempty"` // its identity, where it has one
	Program string    `json:"program,omitempty"`
}

type sessionLine struct {
	hansard.Origin
	// After is the last seq of the session in the base.
	After hansard.Seq `json:"after"`
}

type attachLine struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// partLine begins a run of events that is imported in one call.
type partLine struct {
	Events int              `json:"events"`
	Keys   []hansard.KeyUse `json:"keys,omitempty"`
}

// Entry describes a session in the manifest, as it was when the backup was made.
type Entry struct {
	ID      hansard.SessionID `json:"id"`
	Created time.Time         `json:"created"`
	Updated time.Time         `json:"updated,omitzero"` // the time of the last event, or Created
	Deleted bool              `json:"deleted,omitempty"`
	// Last is the last seq that this backup and those before it contain.
	Last hansard.Seq `json:"last"`
	// From is the number of the backup in which its content begins: what earlier backups
	// have under this id was deleted or replaced since.
	From int `json:"from"`
	// Tail is a hash of the last event. With it an increment checks that the log continues
	// where the base ends.
	Tail string `json:"tail,omitempty"`
	// Offset is where the block begins that contains the start of the session, 0 if this
	// backup has no part of it.
	Offset int64 `json:"offset,omitempty"`
	// Events and Attachments are how many are in this backup.
	Events      hansard.Seq `json:"events,omitempty"`
	Attachments int         `json:"attachments,omitempty"`
	// Damage is why the session is incomplete.
	Damage string `json:"damage,omitempty"`
}

// Totals says how much a backup contains.
type Totals struct {
	// Manifest is where its first block begins.
	Manifest int64     `json:"manifest"`
	Finished time.Time `json:"finished"`
	// Sessions counts the sessions in the manifest that are not deleted, Changed those that
	// have something in this backup, Deleted the tombstones.
	Sessions    int         `json:"sessions"`
	Changed     int         `json:"changed"`
	Deleted     int         `json:"deleted"`
	Damaged     int         `json:"damaged"`
	Events      hansard.Seq `json:"events"`
	Attachments int         `json:"attachments"`
	// Bytes is the uncompressed size of the blocks before the manifest.
	Bytes int64 `json:"bytes"`
}

// tailOf is the Entry.Tail of a session whose last event this is.
func tailOf(e *hansard.Event) string {
	sum := sha256.Sum256(wire.AppendExactLine(nil, e))
	return hex.EncodeToString(sum[:16])
}
