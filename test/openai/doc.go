// Package openai shows that the official OpenAI SDKs for JavaScript are clients of
// Hansard as they are: it starts a server and runs the *.test.mjs files against
// it. There is nothing in it but tests.
//
// The SDKs and node come from the npm registry, pinned and hashed in
// package-lock.json, and are installed into node_modules by the test itself.
// Without a way to the registry the test is skipped with a line that begins with
// SKIPPED; with HANSARD_NO_SKIP=1 it fails.
package openai
