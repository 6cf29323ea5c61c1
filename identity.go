package hansard

import "context"

// Identified is implemented by stores that can be told apart from every other one,
// whatever address they are reached by.
type Identified interface {
	// Identity is a name that no other store has. It stays the same for the life
	// of the store, and a copy of its files has it too. It is empty when the store
	// has none yet.
	Identity(ctx context.Context) (string, error)
}
