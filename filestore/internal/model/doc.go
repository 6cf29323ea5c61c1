// Package model is an explicit-state model checker for the journal protocol of
// the file engine (docs/protocol.md).
//
// The engine does not use it. It holds a second, much smaller description of the
// protocol, step by step, and tries every order in which the steps of several
// processes can happen, with everything that can go wrong in between. It shows
// that the order of steps is right; that the engine follows it is shown by the
// engine's own tests.
//
// # What is modelled
//
// A [Config] is a small world: a ring of two to four cells, two sessions, up to
// three processes, a script of requests, and budgets for faults. A step is one
// system call that changes something others can see, together with the reads that
// nothing can interfere with. Between any two steps
//
//   - any process can be killed, even half-way through a write; a stopped process
//     is one that takes no step, which the search includes;
//   - fdatasync can fail, on the ring or on a log. The error is reported once to
//     each descriptor that was open; the pages stay readable, are not on the
//     disk, and may be evicted. Writing them again helps for the ring, which is
//     preallocated, and not for a log, which grows;
//   - the disk can fill up, a control record can go bad, the power can fail.
//
// Every state is also checked against every disk a power cut could leave in it
// (each unsynced page old or new, slots also torn, names old or new, log lines
// any subset, size without data), by a recovery that is a function of that disk:
// whatever was acknowledged, seen by a reader or relied on by an answer must be
// there, once, whole and in order, and nothing that was refused may be.
//
// Configurations with Solo also check progress: with all others stopped for ever
// outside write.lock, a request gets through.
//
// Comments say in [brackets] which part of the protocol a step stands for, in the
// notation of docs/protocol.md. In one place the model differs from the engine: a
// request whose answer became void is decided again here, and answered as unknown
// there.
//
// # Rules
//
// Each rule of the protocol can be switched off by name; see [Rules]. The tests
// search every configuration with all rules on, to the end, and for each rule
// have a configuration in which the search finds what goes wrong without it. A
// rule whose absence shows nowhere would be a hole in the model or a burden in
// the protocol; the few that only back up others are listed as such.
//
// # Reading a counterexample
//
// The search is breadth first, so [Result.Trace] is a shortest path to the
// violation. Each step names the process and what it did, and then the parts of
// the state that it changed:
//
//	P0 fdatasync(ring) ok
//	      ring 0: journal (durable name) cache 1 0 [#1 epoch 1 start 0] [bad] disk 1 0 [#1 epoch 1 start 0] [bad]
//	      P0   next: finish: lock
//
// Ring cells show the entry in them (' is its second cell, ~ half a write, 0
// nothing), in the page cache and on the disk, each followed by the two slots.
// Log lines show entries as well, 0 for NUL bytes, 2~ for the first half of entry
// 2. A process that is started again keeps its number. The last step prints the
// whole state and the promise that does not hold.
//
// States are remembered only by a 64-bit hash, with a new seed in each run: with
// ten million states the chance of missing one is about one in three hundred
// thousand.
//
// # What is not modelled
//
// Salts and the reuse of a file's blocks; rings of another size and batches too
// large for one; errors while a ring is being copied, and so the failed flag;
// writeback errors not yet reported to anyone; lock files that are replaced; logs
// changed from outside, and so aside and evidence; the unfinished last line of a
// restored log; forks; heartbeats and who may acquire a turn (see package turn:
// here anybody may, at any time); a clean close; repair; the catalog.
package model
