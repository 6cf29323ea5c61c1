package transcript_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"hansard"
	"hansard/memstore"
	"hansard/transcript"
)

// TestLook: the first thing that a user said, wherever it stands among what else there is
// at the beginning; settled when no later event can change it.
func TestLook(t *testing.T) {
	s := memstore.New()
	said := func(role, text string) hansard.Event {
		data, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return hansard.Event{Role: role, Data: data}
	}
	put := func(id hansard.SessionID, events ...hansard.Event) {
		t.Helper()
		if _, err := s.Append(t.Context(), id, hansard.Batch{Create: true, Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(id hansard.SessionID, text string, settled bool) {
		t.Helper()
		look, err := transcript.Look(t.Context(), s, id)
		if err != nil || look.Text != text || look.Settled != settled {
			t.Errorf("%s: %+v, %v; want %q, settled %v", id, look, err, text, settled)
		}
	}
	put("plain", said("system", "Be kind."), said("user", "<environment_context>\nnone"), said("user", "Hello\nthere"), said("user", "More"))
	want("plain", "Hello there", false)
	put("mute", said("assistant", "Anybody?"))
	want("mute", "", false)
	put("deleted", said("user", "Secret"), said("user", "Public"), hansard.Event{Kind: "item_deleted", Data: json.RawMessage(`{"seq":1}`)})
	want("deleted", "Public", false)
	for i := range 100 {
		put("long", said("assistant", fmt.Sprint(i)))
	}
	put("long", said("user", "Too late"))
	want("long", "", true)
	put("large", said("assistant", strings.Repeat("x", 2<<20)), said("user", "Behind two megabytes"))
	want("large", "", true)
	if _, err := transcript.Look(t.Context(), s, "nowhere"); !errors.Is(err, hansard.ErrNotFound) {
		t.Errorf("a session that is not there: %v", err)
	}
}
