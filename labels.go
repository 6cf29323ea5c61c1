package hansard

// LabelPinned is the label of sessions to keep: retention never deletes one that has it,
// whatever its value. [Store.Delete] does.
const LabelPinned = "pinned"
