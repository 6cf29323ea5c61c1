// Package durable runs the public conformance tests of the Durable Streams protocol
// against Hansard's server. There is nothing in it but tests.
//
// The tests, their client and node come from the npm registry, pinned and hashed in
// package-lock.json, and are installed into node_modules by the test itself. Without a way
// to the registry the test is skipped with a line that begins with SKIPPED; with
// HANSARD_NO_SKIP=1 it fails.
package durable
