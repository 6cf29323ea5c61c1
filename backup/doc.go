// Package backup keeps the sessions of a store in one file, and brings them back to a
// store of any engine.
//
// [Write] reads a store that may be in use. Every event that was acknowledged before it
// began is in the backup, and each session is a prefix of its log made of whole
// batches: events with their seqs, times, ids and grants, idempotency keys, metadata,
// the attachments that events name, and the ids of deleted sessions. That is what
// [hansard.Copy] carries, and nothing else: attachments that no event names yet are not
// in it.
//
// A backup may be an increment: it has only what sessions got since an earlier backup,
// its base. [Open] opens a full backup together with its increments, in order, and
// refuses a gap. [Chain.Restore] adds what a store lacks and overwrites nothing;
// [Chain.Check] reads everything and needs no store.
//
// The format is described in docs/backup.md. It is a sequence of zstd frames: zstd -dc
// prints all but the attachments as lines of JSON.
package backup
