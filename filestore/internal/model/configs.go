package model

// The requests that most scripts consist of: a plain append to each of the
// sessions.
var (
	one = Op{Sess: 0}
	two = Op{Sess: 1}
)

// Configs are small worlds, searched to the end in every test run. Each is as
// small as its purpose allows.
var Configs = []*Config{
	// Two processes, one killed anywhere, even half-way through a write.
	{Name: "kill", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, Tear: true, Checkpoints: 1,
		Script: []Op{one, one, two}},
	// The same from the first open on, during which a process can also be
	// killed.
	{Name: "open", Procs: 2, Cells: 3, Spawns: 3, Kills: 2, Tear: true, Checkpoints: 1,
		Script: []Op{one, one, two}},
	// The ring is overwritten again and again; checkpoints race.
	{Name: "lap", Procs: 2, Cells: 2, Running: 2, Tear: true, Checkpoints: 3,
		Script: []Op{one, one, two, one}},
	// A power cut, and work continues with what it left.
	{Name: "cut", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, Tear: true, Cuts: 1, Checkpoints: 1,
		Script: []Op{one, one, two}},

	// A sync of the ring fails; a process is killed before it can react.
	{Name: "eio", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, RingErrors: 1, Evictions: 1, Checkpoints: 1,
		Script: []Op{one, one, two}},
	// With a third process that opens the ring afterwards.
	{Name: "eio, three", Procs: 3, Cells: 2, Running: 2, Spawns: 1, Kills: 1, RingErrors: 1, Evictions: 1,
		Script: []Op{one, one}},
	// Traffic continues after the rotation.
	{Name: "eio, late", Procs: 2, Cells: 4, Running: 2, Spawns: 1, Kills: 1, RingErrors: 1,
		Script: []Op{one, one, one, one}},
	// All die, and the page cache shows the first open content that is not on
	// the disk.
	{Name: "eio, recovery", Procs: 1, Cells: 2, Running: 1, Spawns: 3, Kills: 3, Tear: true, RingErrors: 1, Evictions: 1, Checkpoints: 2,
		Script: []Op{one, one, one}},
	// The power fails as well.
	{Name: "eio, cut", Procs: 2, Cells: 2, Running: 2, Spawns: 1, Kills: 1, RingErrors: 1, Cuts: 1,
		Script: []Op{one, one}},
	// Two threads of one process sync through one descriptor.
	{Name: "threads", Procs: 2, Cells: 3, Running: 1, Spawns: 1, Threads: true, Kills: 1, RingErrors: 1,
		Script: []Op{one, one, two}},

	// A sync of a log fails in a checkpoint.
	{Name: "log eio", Procs: 2, Cells: 2, Running: 2, Spawns: 1, Kills: 1, LogErrors: 1, Evictions: 1, Checkpoints: 2,
		Script: []Op{one, one}},
	// The same in the first open, before it, or in an earlier one.
	{Name: "log eio, recovery", Procs: 1, Cells: 2, Running: 1, Spawns: 3, Kills: 3, LogErrors: 1, Evictions: 1, Checkpoints: 1,
		Script: []Op{one, one}},
	// And the log can't be copied.
	{Name: "log eio, copy", Procs: 1, Cells: 2, Running: 1, Spawns: 1, Kills: 1, LogErrors: 1, NoCopy: 1, Evictions: 1, Checkpoints: 3,
		Script: []Op{one, one}},

	// A record of control goes bad at any moment.
	{Name: "control", Procs: 2, Cells: 2, Running: 2, Spawns: 1, Kills: 1, Control: 1, Checkpoints: 1,
		Script: []Op{one, one}},
	{Name: "control, lap", Procs: 2, Cells: 2, Running: 2, Control: 1, Checkpoints: 1,
		Script: []Op{one, one, one}},
	// When a sync has failed before.
	{Name: "control, eio", Procs: 2, Cells: 2, Running: 2, Spawns: 1, Kills: 1, RingErrors: 1, Control: 1,
		Script: []Op{one, one}},
	// After a cut control is missing, or outdated.
	{Name: "control, cut", Procs: 2, Cells: 2, Running: 1, Spawns: 1, Control: 1, Cuts: 1, Checkpoints: 1,
		Script: []Op{one, one}},

	// The disk fills up while logs are written; with all but one process
	// stopped and space freed, it makes progress.
	{Name: "full disk", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, Fills: 1, Checkpoints: 1, Solo: true,
		Script: []Op{one, one}},
	// Entries of two cells, which do not fit before the ring's end.
	{Name: "pad", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, Tear: true, Checkpoints: 2,
		Script: []Op{{Cells: 2}, {Cells: 2}, two}},
	{Name: "pad, solo", Procs: 2, Cells: 3, Running: 2, Checkpoints: 1, Solo: true,
		Script: []Op{{Cells: 2}, {Cells: 2}}},
	// Several entries in one ring write, of which a kill leaves only the first.
	{Name: "group", Procs: 2, Cells: 4, Running: 2, Spawns: 1, Kills: 1, Tear: true, Checkpoints: 1,
		Script: []Op{one, {Sess: 1, Joined: true}, {Sess: 0, Joined: true}, one, {Sess: 1, Joined: true}}},
	// Processes cache what they know about the sessions.
	{Name: "caches", Procs: 2, Cells: 2, Running: 2, Checkpoints: 2, Caches: true,
		Script: []Op{one, one, two, two, one}},
	{Name: "caches, eio", Procs: 2, Cells: 3, Running: 2, RingErrors: 1, Evictions: 1, Caches: true,
		Script: []Op{one, one, one}},
	// A bit flips in the ring.
	{Name: "flip", Procs: 2, Cells: 4, Running: 2, Flips: true,
		Script: []Op{one, two, one, two}},
	// All other processes are stopped for ever, wherever they are.
	{Name: "solo", Procs: 2, Cells: 2, Running: 2, Spawns: 1, Kills: 1, RingErrors: 1, Checkpoints: 1, Solo: true,
		Script: []Op{one, one, two}},

	// The same request three times, with one key.
	{Name: "keys", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, RingErrors: 1, Evictions: 1, Checkpoints: 1,
		Script: []Op{{Key: 1}, {Key: 1}, {Key: 1}}},
	// Compare-and-swap: one of two gets through.
	{Name: "conflict", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, RingErrors: 1, Evictions: 1,
		Script: []Op{{Expect: 1}, {Expect: 1}, {Expect: 2}}},
	// A session is deleted, appended to in vain, and pruned.
	{Name: "delete", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, Checkpoints: 1,
		Script: []Op{one, {Kind: Delete}, one, {Kind: Prune}}},
	// The turn is taken from a holder that keeps writing.
	{Name: "turn", Procs: 2, Cells: 4, Running: 2, Spawns: 1, Kills: 1,
		Script: []Op{{Kind: Acquire, Token: 0}, {Kind: Acquire, Token: 1}, {Kind: TurnAppend, Token: 0}, {Kind: TurnAppend, Token: 1}}},
	// The turn is released, and released again after somebody else got it.
	{Name: "release", Procs: 2, Cells: 4, Running: 2, Checkpoints: 1,
		Script: []Op{{Kind: Acquire, Token: 0}, {Kind: Release, Token: 0}, {Kind: TurnAppend, Token: 0},
			{Kind: Acquire, Token: 1}, {Kind: Release, Token: 0}, {Kind: TurnAppend, Token: 1}}},
	// The log was restored from a backup older than a grant that somebody still
	// holds.
	{Name: "restored", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, Restored: true,
		Script: []Op{{Kind: Acquire, Token: 0}, {Kind: TurnAppend, Token: 1}, {Kind: TurnAppend, Token: 0}}},
}

// Torture are larger worlds, for long test runs.
var Torture = []*Config{
	{Name: "kill, more", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, Tear: true, Checkpoints: 2,
		Script: []Op{one, one, two, one}},
	{Name: "kill, twice", Procs: 2, Cells: 3, Running: 2, Spawns: 2, Kills: 2, Tear: true, Checkpoints: 1,
		Script: []Op{one, one, two}},
	{Name: "kill, three", Procs: 3, Cells: 3, Running: 3, Spawns: 1, Kills: 1, Tear: true,
		Script: []Op{one, one, two}},
	{Name: "lap, more", Procs: 2, Cells: 2, Running: 2, Tear: true, Checkpoints: 4,
		Script: []Op{one, one, two, one, one}},
	{Name: "cut, twice", Procs: 2, Cells: 2, Running: 2, Spawns: 2, Kills: 1, Tear: true, Cuts: 2, Checkpoints: 1,
		Script: []Op{one, one, two}},
	{Name: "cut, open, eio", Procs: 2, Cells: 3, Spawns: 3, Kills: 1, Tear: true, RingErrors: 1, Evictions: 1, Cuts: 1, Checkpoints: 1,
		Script: []Op{one, one, two}},
	{Name: "eio, twice", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, RingErrors: 2, Evictions: 1, Checkpoints: 1,
		Script: []Op{one, two}},
	{Name: "eio, partial", Procs: 2, Cells: 3, Running: 2, Spawns: 2, Kills: 2, RingErrors: 1, PartialEIO: true, Evictions: 2, Checkpoints: 1,
		Script: []Op{one, two}},
	{Name: "eio, three, more", Procs: 3, Cells: 3, Running: 2, Spawns: 2, Kills: 1, RingErrors: 1, Evictions: 1,
		Script: []Op{one, one, two}},
	{Name: "threads, more", Procs: 2, Cells: 2, Running: 1, Spawns: 1, Threads: true, Kills: 1, RingErrors: 1, Evictions: 1, Checkpoints: 1,
		Script: []Op{one, one, two}},
	{Name: "log eio, more", Procs: 2, Cells: 2, Running: 2, Spawns: 2, Kills: 2, LogErrors: 1, Evictions: 1, Checkpoints: 2,
		Script: []Op{one, one}},
	{Name: "log eio, two logs", Procs: 2, Cells: 3, Running: 2, Kills: 1, LogErrors: 1, Checkpoints: 3,
		Script: []Op{one, two, one}},
	{Name: "log eio, rotate", Procs: 2, Cells: 2, Running: 2, Spawns: 1, Kills: 1, LogErrors: 1, RingErrors: 1, Checkpoints: 2,
		Script: []Op{one, one}},
	{Name: "log eio, control", Procs: 2, Cells: 2, Running: 2, Spawns: 1, Kills: 1, LogErrors: 1, Evictions: 1, Control: 1, Checkpoints: 2,
		Script: []Op{one, one}},
	{Name: "control, eio, lap", Procs: 2, Cells: 2, Running: 2, Spawns: 1, Kills: 1, RingErrors: 1, Control: 1, Checkpoints: 1,
		Script: []Op{one, one, one}},
	{Name: "full disk, more", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, Fills: 2, Checkpoints: 1, Solo: true,
		Script: []Op{one, one, two}},
	{Name: "pad, more", Procs: 2, Cells: 4, Running: 2, Spawns: 1, Kills: 1, Tear: true, RingErrors: 1, Checkpoints: 1,
		Script: []Op{{Cells: 2}, two, {Cells: 2}, {Cells: 2}}},
	{Name: "group, more", Procs: 2, Cells: 4, Running: 2, Spawns: 1, Kills: 1, Tear: true, RingErrors: 1, Evictions: 1, Checkpoints: 2,
		Script: []Op{one, {Sess: 1, Joined: true}, {Sess: 0, Cells: 2}, {Sess: 1, Joined: true}}},
	{Name: "caches, more", Procs: 2, Cells: 2, Running: 2, Spawns: 1, Kills: 1, Checkpoints: 2, Caches: true,
		Script: []Op{one, one, two, one}},
	{Name: "solo, more", Procs: 2, Cells: 2, Running: 2, Spawns: 1, Kills: 1, RingErrors: 1, Checkpoints: 2, Solo: true,
		Script: []Op{one, one, two, one}},
	{Name: "keys, three", Procs: 3, Cells: 3, Running: 3, Spawns: 1, Kills: 1, RingErrors: 1, Evictions: 1,
		Script: []Op{{Key: 1}, {Key: 1}, {Key: 1}}},
	{Name: "delete, more", Procs: 2, Cells: 3, Running: 2, Spawns: 1, Kills: 1, RingErrors: 1, Cuts: 1, Checkpoints: 1,
		Script: []Op{one, {Kind: Delete}, one, {Kind: Prune}}},
	{Name: "turn, more", Procs: 2, Cells: 4, Running: 2, Spawns: 1, Kills: 1, RingErrors: 1, Evictions: 1, Checkpoints: 1,
		Script: []Op{{Kind: Acquire, Token: 0}, {Kind: Acquire, Token: 1}, {Kind: TurnAppend, Token: 0}, {Kind: TurnAppend, Token: 1}}},
}
