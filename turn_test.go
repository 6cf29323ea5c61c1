package hansard_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/memstore"
)

func TestGrantNumbers(t *testing.T) {
	first := engine.NextGrant("", 0x9f86d081884c7d65)
	if first != "1-9f86d081884c7d65" || engine.NextGrant(first, 1) != "2-0000000000000001" {
		t.Errorf("grants are %s and %s", first, engine.NextGrant(first, 1))
	}
	for _, bad := range []hansard.Grant{"", "7", "7-", "-7", "0-9f86d081884c7d65", "07-9f86d081884c7d65", "+7-9f86d081884c7d65",
		"7-9F86D081884C7D65", "7-9f86d081884c7d6", "7-9f86d081884c7d65a", "7-9f86d081884c7d6x", "99999999999999999999-9f86d081884c7d65"} {
		if n := bad.Number(); n != 0 {
			t.Errorf("%q has number %d", bad, n)
		}
	}
}

func TestTurnJSON(t *testing.T) {
	want := hansard.Turn{Grant: "3-9f86d081884c7d65", Holder: hansard.Holder{Label: "a", Host: "h", PID: 7}, Seq: 4,
		Since: engine.Now(), TTL: 1500 * time.Millisecond, MaxHold: time.Minute, Exclusive: true, Reason: "stuck"}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got hansard.Turn
	if err := json.Unmarshal(data, &got); err != nil || got != want {
		t.Errorf("%s became %+v, %v", data, got, err)
	}
}

func TestLeaseLearnsOfTheft(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	ctx := t.Context()
	if _, err := s.Create(ctx, "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	lease, err := hansard.Take(ctx, s, "s", hansard.Claim{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	thief, err := s.Acquire(ctx, "s", hansard.Claim{Steal: "it is stuck"})
	if err != nil {
		t.Fatal(err)
	}
	<-lease.Context().Done() // not after a third of an hour
	var fenced *hansard.FencedError
	if cause := context.Cause(lease.Context()); !errors.As(cause, &fenced) || fenced.Current.Grant != thief.Grant {
		t.Errorf("the lease ended with %v", cause)
	}
	if err := lease.Release(); !errors.Is(err, hansard.ErrFenced) {
		t.Errorf("release after loss: %v", err)
	}
	if now, err := s.Turn(ctx, "s"); err != nil || now == nil || now.Grant != thief.Grant {
		t.Errorf("the thief's turn is %+v, %v", now, err)
	}
	var g engine.Grants
	for e, err := range s.Read(ctx, "s", hansard.Range{}) {
		if err == nil {
			err = g.Next(&e)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if g.Current == nil || g.Current.Reason != "it is stuck" {
		t.Errorf("the record says %+v", g.Current)
	}
}
