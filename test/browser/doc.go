// Package browser tests the page of the server in a real browser, Debian's
// chromium, against the real command. It is a module of its own so that nobody who
// uses hansard has the browser's driver among its dependencies.
//
// Run it with test/browser/run, which installs chromium where it is missing.
// HANSARD_SCREENSHOTS=DIR keeps pictures of what was seen.
package browser
