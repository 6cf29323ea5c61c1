package model

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// removals says, for each rule, in which world its absence shows and how. Two
// rules in one row back each other up: something goes wrong only without both.
var removals = []struct {
	without Rules
	config  string
	broken  string // part of what the search must say
}{
	{Chain, "cut", "gap in log 0"},
	{PadNeverStraddles, "pad, solo", "comes to nothing"},
	{DurableHint, "flip", "passes for the end of the log"},

	{JournalInode, "eio, three", "seen by a reader, is gone"},
	{ControlCRC, "control, lap", "is not in the ring"},
	{ReloadSyncs, "control", "is not on the disk"},
	{RebuildRewrites, "control, eio", "is not on the disk"},
	{DirectorySync, "eio, cut", "seen by a reader, is gone"},
	{OwnDurableDropped | TargetSameRead, "eio, late", "seen by a reader, is gone"},
	{CacheEpoch, "caches, eio", "gap in log 0"},
	{CacheStart, "caches", "where the ring has entry"},
	{WholeAtOpen | WholeAtLock, "eio, three", "is not in the ring"},

	{SyncBeforeApply, "lap", "seen by a reader, is gone"},
	{UnknownAfterWrite, "eio", "answered as not stored, is there"},
	{EpochInWaits, "eio, three", "counts as durable and is not on the disk"},
	{SyncErrorFinal, "eio, three", "is not on the disk"},
	{SyncErrorShared, "threads", "is not on the disk"},
	{OneSyncPerFD, "threads", "is not on the disk"},
	{OpenerRewrites, "eio, three", "is not on the disk"},
	{StartInW, "lap", "holds more than it can"},
	{SyncLockBypassed, "solo", "is stuck"},
	{FullRingSyncs, "solo", "comes to nothing"},
	{ReplayWaits, "keys", "relied on by an answer, is gone"},
	{RefusalWaits, "conflict", "relied on by an answer, is gone"},
	{VoidReevaluated, "keys", "counts as durable and is not on the disk"},
	{ApplyStops, "full disk", "where the ring has entry"},
	{LogInode, "log eio", "set aside"},
	{LiveHoles, "log eio, copy", "where the ring has entry"},

	{HeaderBeforeStart, "lap", "looks damaged"},
	{SlotChoice, "lap", "no valid slot"},
	{SlotUnderLock, "lap", "looks damaged"},
	{SlotStillMine, "lap", "looks damaged"},
	{CheckpointNeverBack, "lap", "no valid slot"},
	{SessionsDirSync, "lap", "acknowledged, is gone"},
	{LogCopyAfterEIO, "log eio, copy", "torn or NUL for good"},
	{CopyFromRing, "log eio, copy", "torn or NUL for good"},
	{CheckpointMark, "log eio", "torn or NUL for good"},
	{OpenBeforeMarks, "log eio", "torn or NUL for good"},
	{OwnMarkCounts, "log eio, copy", "torn or NUL for good"},

	{AloneChecked, "open", "no valid slot"},
	{ControlNotTrusted, "cut", "is not in the ring"},
	{FirstOpenRewrites, "eio, recovery", "seen by a reader, is gone"},
	{FirstOpenSlot, "eio, recovery", "no valid slot"},
	{FirstOpenDirSync, "eio, recovery", "seen by a reader, is gone"},
	{HolesFilled, "cut", "set aside"},
	{MarkAtOpen, "log eio, recovery", "torn or NUL for good"},
	{SuspectsFirst, "log eio, copy", "set aside"},
	{RecoveryMarks, "log eio, recovery", "torn or NUL for good"},
	{RewriteVerified, "eio, recovery", "is not in the ring"},

	{KeysCompared, "keys", "key that was stored before"},
	{TombstoneLast, "delete", "stands behind a tombstone"},
	{DeleteIsEntry, "delete", "is not deleted"},
	{PruneUnnamed, "delete", "where the ring has entry"},
	{FenceEquality, "restored", "grant that is not the current one"},
	{FenceInLock, "turn", "grant that is not the current one"},
}

// redundant are rules that these worlds do not need, and why they are kept.
var redundant = map[Rules]string{
	Position:      "the chain tells laps apart, too; but it is a hash, and a position costs nothing",
	EpochOrder:    "so does it for epochs",
	Adoption:      "an entry whose end was never published may as well be overwritten: the chain keeps what follows it out",
	OpenerSlots:   "a slot that was lost is never the one whose start is published, and is the next to be overwritten",
	InodeAtFinish: "what was synced in a ring that was replaced since is in the new one as well",

	// each of a pair in removals
	OwnDurableDropped: "the target of a sync and its epoch come from one read",
	TargetSameRead:    "what was aimed at in another epoch is dropped with it",
	WholeAtOpen:       "whoever takes the lock looks as well",
	WholeAtLock:       "whoever could be told nothing of a failed sync has looked when it opened the ring",
}

func TestEveryRuleIsNeeded(t *testing.T) {
	for _, c := range removals {
		t.Run(c.without.String(), func(t *testing.T) {
			t.Parallel()
			r := run(t, find(t, c.config), AllRules&^c.without)
			switch {
			case r.Broken == "":
				t.Errorf("nothing is wrong in %q without %v", c.config, c.without)
			case !strings.Contains(r.Broken, c.broken):
				t.Errorf("got %q, want %q\n%s", r.Broken, c.broken, r.Trace)
			case !strings.HasSuffix(strings.TrimSpace(r.Trace), r.Broken):
				t.Errorf("the trace does not end with the violation:\n%s", r.Trace)
			}
		})
	}
}

// TestRedundantRules makes sure that the redundant rules still are: once one of
// them is needed, its row belongs in the other table.
func TestRedundantRules(t *testing.T) {
	if !torture() {
		t.Skip("set HANSARD_TORTURE=1")
	}
	for rule := range redundant {
		t.Run(rule.String(), func(t *testing.T) {
			t.Parallel()
			for _, cfg := range Configs {
				if r := run(t, cfg, AllRules&^rule); r.Broken != "" {
					t.Errorf("%s: %s\n%s", cfg.Name, r.Broken, r.Trace)
				}
			}
		})
	}
}

func TestEveryRuleIsListed(t *testing.T) {
	if got, want := endOfRules, Rules(1)<<len(ruleNames); got != want {
		t.Fatalf("%d names for rules up to %b", len(ruleNames), got)
	}
	var seen Rules
	for _, c := range removals {
		seen |= c.without
	}
	for rule := range redundant {
		seen |= rule
	}
	if missing := AllRules &^ seen; missing != 0 {
		t.Errorf("nothing shows what is wrong without %v", missing)
	}
}

// TestEveryRuleIsDocumented: docs/protocol.md says what each rule is for.
func TestEveryRuleIsDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range ruleNames {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/protocol.md does not mention `%s`", name)
		}
	}
}

// root is the directory of the module.
func root(t *testing.T) string {
	t.Helper()
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if len(dir) > 100 {
			t.Fatal("no go.mod above this package")
		}
	}
}

// TestTraceIsReplayed reads a counterexample step by step.
func TestTraceIsReplayed(t *testing.T) {
	r := Search(find(t, "lap"), AllRules&^SyncBeforeApply, 0)
	for _, step := range []string{"P0 takes the next request", "P0 locks W", "P0 writes to the ring", "P0 publishes written, unlocks W", "apply"} {
		_, after, found := strings.Cut(r.Trace, step)
		if !found {
			t.Fatalf("no step %q where it belongs:\n%s", step, r.Trace)
		}
		r.Trace = after
	}
}
