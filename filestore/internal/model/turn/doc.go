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
// table of the grants it keeps alive. What callers were told, kept outside.
// Between any two steps
//
//   - a process can be killed and started again; a stopped one takes no step;
//   - its caller keeps its token through that, as a client of two servers does,
//     and uses it when it likes;
//   - a claimant that has seen a count of renewals twice may call the holder
//     silent: no clock is modelled, so every clock is, also one that jumps. So may
//     one who wants to write past an exclusive turn, and end it;
//   - a look at an instance can fail;
//   - the power can fail, and an older log can be put back in place.
//
// # What must hold
//
// No write stands in the log under a grant that was not held there. No token is
// accepted once anybody was told that it is over. What was answered is in the log.
// Nobody is called dead who lives and keeps his grant. A holder's grant is ended by
// nobody else's release.
//
// Each [Rules] can be taken away; the tests show what goes wrong then.
package turn
