package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"hansard"
)

var turnCrowdCases = []Case{
	{Name: "turn/contended", run: turnContended,
		Defends: "if many claim a turn at once, through many handles, one holds it at a time, and all get it", Answers: "F2 F3 1 2 7 11"},
	{Name: "turn/contended with thieves", run: turnThieves,
		Defends: "whatever is stolen, lost or given up in a crowd, nobody ever writes under a grant that is not the current one", Answers: "F2 F3 1 7 8 9 20"},
	{Name: "processes/turn", run: processesTurn, needs: needsProcesses,
		Defends: "if many processes claim a turn, one holds it at a time, and all get it", Answers: "F3 1 2 3 7 18"},
	{Name: "processes/turn of the dead", run: processesTurnDead, needs: needsProcesses,
		Defends: "the turn of a killed process goes to one that waits, and nothing has to be cleaned up", Answers: "F3 1 4 18"},
	{Name: "processes/beside a turn", run: processesBesideTurn, needs: needsProcesses,
		Defends: "while one holds the turn, eight processes append a thousand messages without waiting for it, and the holder sees them as they arrive",
		Answers: "10 12"},
}

// agent takes a session's turn again and again, and writes a beginning and an end
// under it, which reveal whether two held it at once.
type agent struct {
	Name    string
	Session hansard.SessionID
	Turns   int // 0: until the context ends
	Claim   hansard.Claim
	// Steal makes it steal one in this many of its turns.
	Steal int
	// Keep says that the last turn is not released.
	Keep bool
}

// stint is what an agent reports about one turn it held.
type stint struct {
	Name  string        `json:"name"`
	Grant hansard.Grant `json:"grant"`
	// Whole says that the turn was not stolen and no write was refused.
	Whole bool `json:"whole,omitempty"`
	// Begin and End are within the time it held the turn, on a clock that only
	// agents of one process share.
	Begin, End time.Duration `json:"-"`
}

// turnAct is the data of what an agent writes.
type turnAct struct {
	Agent string `json:"agent"`
	Part  string `json:"part"` // begin, end
}

var processBegan = time.Now()

func (a *agent) run(ctx context.Context, s hansard.Store, to func(report)) error {
	for n := 0; a.Turns == 0 || n < a.Turns; n++ {
		c := a.Claim
		c.Label, c.Wait = a.Name, hansard.Forever
		if a.Steal > 0 && n%a.Steal == 0 {
			c.Steal = fmt.Sprint("theft ", n)
		}
		turn, err := s.Acquire(ctx, a.Session, c)
		if ctx.Err() != nil && a.Turns == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: turn %d: %w", a.Name, n, err)
		}
		st := stint{Name: a.Name, Grant: turn.Grant, Begin: time.Since(processBegan)}
		err = a.work(ctx, s, turn.Grant)
		st.End = time.Since(processBegan)
		if keep := a.Keep && n == a.Turns-1; err == nil && !keep {
			err = s.Release(ctx, a.Session, turn.Grant)
		}
		if st.Whole = err == nil; !st.Whole && !errors.Is(err, hansard.ErrFenced) {
			return fmt.Errorf("%s: under %s: %w", a.Name, turn.Grant, err)
		}
		to(report{Stint: &st})
	}
	return nil
}

func (a *agent) work(ctx context.Context, s hansard.Store, g hansard.Grant) error {
	for _, part := range []string{"begin", "end"} {
		data, err := json.Marshal(turnAct{a.Name, part})
		if err != nil {
			return err
		}
		if _, err := s.Append(ctx, a.Session, hansard.Batch{Events: []hansard.Event{{Data: data}}, Turn: g}); err != nil {
			return err
		}
		letOthersRun()
	}
	return nil
}

// checkStints checks a log against the agents' reports: each turn is in it once, with
// its agent, its beginning and its end, and nothing by another agent in between.
func checkStints(log []hansard.Event, stints []stint) error {
	if _, err := checkGrants(log); err != nil {
		return err
	}
	acts := make(map[hansard.Grant][]turnAct)
	granted := make(map[hansard.Grant]string)
	for _, e := range log {
		if e.Kind == hansard.KindTurn {
			r, err := recordOf(e)
			if err != nil {
				return err
			}
			if r.Grants() {
				granted[e.Turn] = r.Holder.Label
			}
			continue
		}
		var a turnAct
		if err := json.Unmarshal(e.Data, &a); err != nil {
			return err
		}
		acts[e.Turn] = append(acts[e.Turn], a)
	}
	told := make(map[hansard.Grant]bool)
	for _, s := range stints {
		if told[s.Grant] {
			return fmt.Errorf("grant %s was given to two", s.Grant)
		}
		told[s.Grant] = true
		if granted[s.Grant] != s.Name {
			return fmt.Errorf("grant %s of %s is on record for %q", s.Grant, s.Name, granted[s.Grant])
		}
		want := []turnAct{{s.Name, "begin"}, {s.Name, "end"}}
		if got := acts[s.Grant]; s.Whole && !slices.Equal(got, want) || len(got) > 2 || !slices.Equal(got, want[:len(got)]) {
			return fmt.Errorf("under grant %s of %s was written %q (whole: %v)", s.Grant, s.Name, got, s.Whole)
		}
	}
	return nil
}

// checkApart reports whether two agents of one process believed they held the turn at
// the same time. Only for turns that were not stolen.
func checkApart(stints []stint) error {
	sorted := slices.SortedFunc(slices.Values(stints), func(a, b stint) int { return cmp.Compare(a.Begin, b.Begin) })
	for i := 1; i < len(sorted); i++ {
		if a, b := sorted[i-1], sorted[i]; b.Begin < a.End {
			return fmt.Errorf("%s had %s until %v, and %s had %s from %v", a.Name, a.Grant, a.End, b.Name, b.Grant, b.Begin)
		}
	}
	return nil
}

// agents runs agents on the handles, and returns what they reported.
func (x *env) agents(handles []hansard.Store, list []*agent) []stint {
	x.Helper()
	var mu sync.Mutex // guards out
	var out []stint
	x.each(len(list), "agent", func(i int) error {
		return list[i].run(x.ctx, handles[i%len(handles)], func(r report) {
			mu.Lock()
			defer mu.Unlock()
			out = append(out, *r.Stint)
		})
	})
	return out
}

func turnContended(x *env) {
	handles := x.handles(4)
	x.create("s")
	var list []*agent
	for i := range 12 {
		c := hold("")
		c.Exclusive = i%3 == 0
		list = append(list, &agent{Name: fmt.Sprint("agent ", i), Session: "s", Turns: 8, Claim: c})
	}
	stints := x.agents(handles, list)
	if err := checkStints(x.all("s"), stints); err != nil {
		x.Error(err)
	}
	if err := checkApart(stints); err != nil {
		x.Error(err)
	}
	for _, s := range stints {
		if !s.Whole {
			x.Errorf("%s lost %s, which nobody could take from it", s.Name, s.Grant)
		}
	}
	if n := x.stat("s").LastSeq; len(stints) != 12*8 || n != 12*8*4 {
		x.Errorf("%d turns of 4 events are %d events", len(stints), n)
	}
}

func turnThieves(x *env) {
	handles := x.handles(3)
	x.create("s")
	var list []*agent
	for i := range 9 {
		a := &agent{Name: fmt.Sprint("agent ", i), Session: "s", Turns: 12, Claim: hansard.Claim{TTL: 20 * time.Millisecond}}
		if i%3 == 0 {
			a.Steal = 2
		}
		list = append(list, a)
	}
	stints := x.agents(handles, list)
	log := x.all("s")
	if err := checkStints(log, stints); err != nil {
		x.Error(err)
	}
	stolen := 0
	for _, e := range log {
		if r, err := recordOf(e); err == nil && r.Change == hansard.TurnStolen {
			stolen++
		}
	}
	if stolen == 0 {
		x.Error("nothing was stolen: too little to judge by")
	}
	if len(stints) != 9*12 {
		x.Errorf("%d turns were had, want %d", len(stints), 9*12)
	}
}

func processesTurn(x *env) {
	x.create("s")
	var children []*child
	const processes, turns = 6, 8
	for i := range processes {
		a := &agent{Name: fmt.Sprint("agent ", i), Session: "s", Turns: turns, Claim: hold("")}
		children = append(children, x.spawn("process of "+a.Name, order{Agent: a}))
	}
	x.begin(children...)
	var stints []stint
	for _, c := range children {
		for _, r := range c.finish() {
			if !r.Stint.Whole {
				x.Errorf("%s lost %s, which nobody could take from it", r.Stint.Name, r.Stint.Grant)
			}
			stints = append(stints, *r.Stint)
		}
	}
	if err := checkStints(x.all("s"), stints); err != nil {
		x.Error(err)
	}
	if n := x.stat("s").LastSeq; len(stints) != processes*turns || n != processes*turns*4 {
		x.Errorf("%d turns of 4 events are %d events", len(stints), n)
	}
}

func processesTurnDead(x *env) {
	x.create("s")
	var stints []stint
	for round := range 3 {
		// It keeps its last turn, and stays alive until it is killed.
		a := &agent{Name: fmt.Sprint("mortal ", round), Session: "s", Turns: 2, Claim: hansard.Claim{TTL: time.Second}, Keep: true}
		b := &agent{Name: fmt.Sprint("heir ", round), Session: "s", Turns: 2, Claim: hold("")}
		mortal := x.spawn("process of "+a.Name, order{Agent: a, Linger: true})
		kept := mortal.said(a.Turns)
		x.begin(mortal)
		x.within("the turn is held", kept)
		heir := x.spawn("process of "+b.Name, order{Agent: b})
		x.begin(heir)
		mortal.kill()
		for _, r := range append(heir.finish(), mortal.reports...) {
			stints = append(stints, *r.Stint)
		}
		if err := checkStints(x.all("s"), stints); err != nil {
			x.Error(err)
		}
		last := mortal.reports[a.Turns-1].Stint.Grant
		x.wantFencedOff("after its holder was killed", "s", last, nil)
	}
}

func processesBesideTurn(x *env) {
	x.create("s")
	lease := x.take(x.store, "s", hold("holder"))
	const processes, messages = 8, 125
	total := lease.Turn().Seq + processes*messages
	f := follower{Session: "s", After: lease.Turn().Seq, Upto: total}
	following := x.start("the holder, following", func() error { return f.run(lease.Context(), x.store, func(report) {}) })
	var writers []*writer
	for i := range processes {
		writers = append(writers, &writer{Name: fmt.Sprint("w", i), Sessions: []hansard.SessionID{"s"}, Batches: messages, Largest: 1})
	}
	acks := x.processWork(writers, 0, nil)
	following.finish()
	if err := lease.Context().Err(); err != nil {
		x.Errorf("the turn was lost: %v", context.Cause(lease.Context()))
	}
	if err := lease.Release(); err != nil {
		x.Errorf("Release: %v", err)
	}
	log := x.all("s")
	if err := CheckLog(log, acks); err != nil {
		x.Error(err)
	}
	if len(acks) != processes*messages || len(log) != len(acks)+2 {
		x.Errorf("%d messages were acknowledged, and %d events stored", len(acks), len(log))
	}
}
