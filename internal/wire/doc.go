// Package wire is the JSON form of sessions, events, batches and errors outside of a
// store: in the output of the command, and between the server and its clients. There
// is one form for both, defined once.
//
// The data of an event keeps its bytes. encoding/json would compact and escape it, and
// would refuse data nested close to its depth limit once it is a member of another
// object; so objects with data are written by hand and parsed with [EachMember].
package wire
