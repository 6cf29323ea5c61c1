// Package mcp runs the public conformance tests of the Model Context Protocol against
// hansard mcp: those that need no tools of the tests' own. There is nothing in it but tests.
//
// The tests and node come from the npm registry, pinned and hashed in package-lock.json, and
// are installed into node_modules by the test itself. Without a way to the registry the test
// is skipped with a line that begins with SKIPPED; with HANSARD_NO_SKIP=1 it fails.
package mcp
