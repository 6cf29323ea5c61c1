package wire

import (
	"encoding/json"

	"hansard"
)

// Session is the description of a session outside of a store.
type Session struct {
	hansard.Info
	Turn    *hansard.Turn         `json:"turn"` // null when it is free
	Damaged bool                  `json:"damaged"`
	Damage  *hansard.DamagedError `json:"damage,omitempty"`
	// Preview is, in lists that ask for it, the first prompt of a session that
	// has no title.
	Preview string `json:"preview,omitempty"`
}

// Count is how many sessions match.
type Count struct {
	Count int `json:"count"`
}

// NewSession describes a session.
func NewSession(i hansard.Info) Session {
	if i.Labels == nil {
		i.Labels = map[string]string{}
	}
	if len(i.State) == 0 {
		i.State = json.RawMessage("null")
	}
	return Session{Info: i, Turn: i.Turn, Damaged: i.Damaged(), Damage: i.Damage}
}

// Describe returns the Info that a Session was made from.
func (s Session) Describe() hansard.Info {
	i := s.Info
	i.Turn, i.Damage = s.Turn, s.Damage
	if i.Labels == nil {
		i.Labels = map[string]string{}
	}
	return i
}
