package wire

// Complete is the last line of a report of findings. Without it findings may be
// missing.
type Complete struct {
	Complete bool `json:"complete"`
	Findings int  `json:"findings"` // how many lines were before it
}
