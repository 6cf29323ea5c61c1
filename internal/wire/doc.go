// Package wire is the JSON that sessions, events, batches and errors have outside
// of a store: in the output of the command, and between the server and its
// clients. It is one spelling for all of them, written once.
//
// What is special about it: the data of an event keeps its bytes. encoding/json
// would compact and escape it on the way out, and refuse data nested nearly as
// deep as JSON allows once it is a member of something; so objects that hold data
// are written by hand and taken apart by [EachMember].
package wire
