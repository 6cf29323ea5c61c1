package wire

import (
	"encoding/json"

	"hansard"
)

// Session is a session as it is described to the outside.
type Session struct {
	hansard.Info
	Turn    *hansard.Turn         `json:"turn"` // null when it is free
	Damaged bool                  `json:"damaged"`
	Damage  *hansard.DamagedError `json:"damage,omitempty"`
	// Cursor continues a list behind this session.
	Cursor string `json:"cursor,omitempty"`
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

// Describe is the Info that a Session was made of.
func (s Session) Describe() hansard.Info {
	i := s.Info
	i.Turn, i.Damage = s.Turn, s.Damage
	if i.Labels == nil {
		i.Labels = map[string]string{}
	}
	return i
}
