// Package turn is an explicit-state model of how a session's turn is given,
// kept and lost in the file engine.
//
// The engine does not use it. Like package model, which shows that what is
// committed stays committed, it tries every order of small steps of a few
// processes, and here a commit is one step: lines are added under write.lock, a
// sync makes all of them durable.
//
// # What is modelled
//
// The log: grants, their ends, and writes under them, and how much of it is
// durable. Processes, each with an instance that is locked while it lives and a
// table of the grants it keeps alive. What callers were told is kept outside.
// Between any two steps
//
//   - a process can be killed and started again; a stopped one takes no step;
//   - its caller keeps its token across restarts, as a client of two servers does,
//     and may use it at any time;
//   - a claimant that has seen the same count of renewals twice may declare the
//     holder silent: no clock is modelled, so every clock is covered, including one
//     that jumps. So may a process that wants to write despite an exclusive turn,
//     and end it;
//   - a look at an instance can fail;
//   - the power can fail, and an older log can be restored.
//
// # What must hold
//
// No write is in the log under a grant that was not held at that point. No token is
// accepted once anybody was told that it is over. What was acknowledged is in the
// log. No process is declared dead that is alive and keeps its grant. A release
// ends no grant but its own.
//
// Each of the [Rules] can be switched off; the tests show what goes wrong then.
package turn
