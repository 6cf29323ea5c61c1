// Package test breaks the real program: many processes, kill -9 at random and at
// chosen system calls, stopped processes, power cuts, full disks, short writes,
// logs that somebody else changed, and turns that are fought over. There is nothing in it but tests.
//
// Each test keeps what was acknowledged outside of the store, in a ledger made of
// the lines that the writers printed, and compares it at the end with the log
// that the command reads back and with hansard verify. The writers are the
// command itself, built once, or this test binary run again as a small program
// of its own where the command is not enough (see workers).
//
// HANSARD_TORTURE=N does N times as much. What is missing on a machine (root, loop
// devices, strace) is skipped with a line that begins with SKIPPED; with
// HANSARD_NO_SKIP=1 it is a failure. Seeds are printed; HANSARD_SEED replays one.
package test
