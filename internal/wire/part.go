package wire

import (
	"fmt"
	"strconv"
	"time"

	"hansard"
)

// AppendPart writes a part of a session as the body of an import. The session's id is
// in the path.
func AppendPart(dst []byte, p *hansard.Part) []byte {
	dst = append(dst, `{"created":"`...)
	dst = p.Created.AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, `","meta":`...)
	dst = append(dst, Marshal(p.Meta)...)
	dst = append(dst, `,"deleted":`...)
	dst = strconv.AppendBool(dst, p.Deleted)
	if p.Parent != nil {
		dst = append(append(dst, `,"parent":`...), Marshal(p.Parent)...)
	}
	dst = append(dst, `,"events":[`...)
	for i := range p.Events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendExact(dst, &p.Events[i])
	}
	dst = append(dst, `],"keys":[`...)
	for i := range p.Keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, Marshal(p.Keys[i])...)
	}
	return append(dst, `]}`...)
}

// appendExact writes an event with the exact bytes of its data, in "raw" if space
// around it would be lost.
func appendExact(dst []byte, e *hansard.Event) []byte {
	if survives(e.Data) {
		return AppendEvent(dst, e)
	}
	dst = append(appendHead(dst, e, nil), `,"raw":`...)
	return append(appendString(dst, string(e.Data)), '}')
}

// ParsePart reads the body of an import. It checks the shape only; the store checks the
// rest.
func ParsePart(object []byte) (hansard.Part, error) {
	var p hansard.Part
	err := EachMember(object, func(name string, value []byte) error {
		switch name {
		case "created":
			return Member(name, value, &p.Created)
		case "meta":
			return Member(name, value, &p.Meta)
		case "deleted":
			return Member(name, value, &p.Deleted)
		case "parent":
			return Member(name, value, &p.Parent)
		case "events":
			return parseEvents(value, 2*hansard.MaxBatchEvents, &p.Events)
		case "keys":
			return EachElement(value, func(value []byte) error {
				if len(p.Keys) == 2*hansard.MaxBatchEvents {
					return tooMany(name, 2*hansard.MaxBatchEvents)
				}
				p.Keys = append(p.Keys, hansard.KeyUse{})
				return Member(fmt.Sprintf("keys[%d]", len(p.Keys)-1), value, &p.Keys[len(p.Keys)-1])
			})
		}
		return &hansard.InvalidError{Field: name, Reason: "an import has no such member"}
	})
	return p, err
}
