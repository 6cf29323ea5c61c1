package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/sessionlog"
)

// Metadata is folded from patches spread over the log. The model applies the patches one by one.

// randomPatch changes a few members, in all the ways JSON allows.
func randomPatch(rng *rand.Rand) *hansard.Patch {
	p := &hansard.Patch{}
	if rng.IntN(3) == 0 {
		title := []string{"", "plain", "<b>&amp;", "zwei\nZeilen", "\u2028 🙂", strings.Repeat("long ", 50)}[rng.IntN(6)]
		p.Title = &title
	}
	if rng.IntN(2) == 0 {
		p.Labels = map[string]*string{}
		for range 1 + rng.IntN(3) {
			name := fmt.Sprintf("label %d", rng.IntN(12))
			p.Labels[name] = nil
			if value := fmt.Sprintf("v%d\u2029", rng.IntN(100)); rng.IntN(3) > 0 {
				p.Labels[name] = &value
			}
		}
	}
	switch rng.IntN(12) {
	case 0:
		p.State = json.RawMessage([]string{`null`, `[1,2,{"a":null}]`, `"text"`, `12345678901234567890.10`, `{}`, `false`}[rng.IntN(6)])
	case 1, 2, 3, 4, 5:
		p.State = json.RawMessage(fmt.Sprintf(`{"k%d":%d,"deep":{"d%d":{"x":%d}}}`, rng.IntN(9), rng.IntN(99), rng.IntN(4), rng.IntN(99)))
	case 6, 7:
		p.State = json.RawMessage(fmt.Sprintf(`{"k%d":null,"deep":{"d%d":null}}`, rng.IntN(9), rng.IntN(4)))
	case 8:
		p.State = json.RawMessage(fmt.Sprintf(`{"big":"%s"}`, strings.Repeat("y", rng.IntN(700))))
	}
	return p
}

func wantMeta(s *Store, id hansard.SessionID, want hansard.Meta) error {
	info, err := s.Stat(context.Background(), id)
	if err != nil || info.Damage != nil {
		return errors.Join(err, fmt.Errorf("stat: %+v", info))
	}
	if want.Labels == nil {
		want.Labels = map[string]string{}
	}
	if len(want.State) == 0 {
		want.State = json.RawMessage("null")
	}
	if info.Title != want.Title || !reflect.DeepEqual(info.Labels, want.Labels) || string(info.State) != string(want.State) {
		return fmt.Errorf("stat: title %q, labels %v, state %s\nmodel: title %q, labels %v, state %s",
			info.Title, info.Labels, info.State, want.Title, want.Labels, want.State)
	}
	return nil
}

// TestMetaFolds: thousands of patches between events, by several processes, give what the model
// says, and are found with a short walk.
func TestMetaFolds(t *testing.T) {
	for seed := range uint64(4) {
		ctx := context.Background()
		rng := rand.New(rand.NewPCG(seed, 31))
		d := largeDisk(seed)
		s, _ := opened(t, d, 100)
		model := hansard.Meta{Title: "first", Labels: map[string]string{"label 1": "made"}, State: json.RawMessage(`{"made":true}`)}
		if _, err := s.Create(ctx, "m", model); err != nil {
			t.Fatal(err)
		}
		refused := 0
		for i := range 1500 {
			if i%400 == 399 {
				_ = s.Close()
				s, _ = opened(t, d, uint64(101+i))
			}
			b := hansard.Batch{Patch: randomPatch(rng)}
			for range rng.IntN(3) {
				b.Events = append(b.Events, text("between"))
			}
			next, wantErr := engine.ApplyPatch("s", model, b.Patch)
			_, err := s.Append(ctx, "m", b)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("seed %d: patch %d: %v, the model says %v", seed, i, err, wantErr)
			}
			if err != nil {
				refused++
				continue
			}
			model = next
			if i%50 == 0 || i > 1490 {
				if err := wantMeta(s, "m", model); err != nil {
					t.Fatalf("seed %d: after patch %d: %v", seed, i, err)
				}
				ro, c := readOnly(t, d)
				if err := wantMeta(ro, "m", model); err != nil {
					t.Fatalf("seed %d: after patch %d, read by another: %v", seed, i, err)
				}
				if c.reads > 2*sessionlog.SnapshotEvery {
					t.Errorf("seed %d: after patch %d stat took %d reads", seed, i, c.reads)
				}
			}
		}
		if err := wantSound(s, "m"); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestMetaRefusedPatch: a patch over a limit is refused together with its batch, and leaves the
// metadata unchanged.
func TestMetaRefusedPatch(t *testing.T) {
	ctx := context.Background()
	s, _ := opened(t, largeDisk(1), 1)
	model := hansard.Meta{Labels: map[string]string{}}
	for i := range hansard.MaxLabels {
		model.Labels[fmt.Sprint("l", i)] = "x"
	}
	if _, err := s.Create(ctx, "m", model); err != nil {
		t.Fatal(err)
	}
	value := "one too many"
	tooMany := &hansard.Patch{Labels: map[string]*string{"more": &value}, Title: &value}
	if _, err := s.Append(ctx, "m", hansard.Batch{Events: []hansard.Event{text("x")}, Patch: tooMany}); !errors.Is(err, hansard.ErrTooLarge) {
		t.Errorf("append: %v, want ErrTooLarge", err)
	}
	if err := wantMeta(s, "m", model); err != nil {
		t.Error(err)
	}
	exchange := &hansard.Patch{Labels: map[string]*string{"more": &value, "l0": nil}}
	if r, err := s.Append(ctx, "m", hansard.Batch{Patch: exchange}); err != nil || r.First != 1 {
		t.Errorf("append: %+v, %v", r, err)
	}
}

// TestMetaNests: whatever CheckBatch and CheckMeta accept can be read back, however deeply
// nested.
func TestMetaNests(t *testing.T) {
	ctx := context.Background()
	for _, depth := range []int{100, 2000, 9997, 10_000} {
		deep := json.RawMessage(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		nested := json.RawMessage(strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth))
		member := json.RawMessage(`{"a":` + string(deep) + `}`)
		for i, state := range []json.RawMessage{deep, nested, member} {
			what := fmt.Sprintf("state %d, %d deep", i, depth)
			s, _ := opened(t, largeDisk(1), 1)
			if _, err := s.Create(ctx, "plain", hansard.Meta{}); err != nil {
				t.Fatal(err)
			}
			if i != 1 || depth < 2000 { // merging so many objects is refused, and slow
				_, err := s.Append(ctx, "plain", hansard.Batch{Patch: &hansard.Patch{State: state}})
				if err != nil && !errors.Is(err, hansard.ErrInvalid) {
					t.Errorf("%s: patch: %v", what, err)
				}
				if err := wantSound(s, "plain"); err != nil {
					t.Errorf("%s: after the patch: %v", what, err)
				}
			}
			_, err := s.Create(ctx, "made", hansard.Meta{State: state})
			if errors.Is(err, hansard.ErrInvalid) {
				continue
			}
			if err != nil {
				t.Errorf("%s: create: %v", what, err)
			}
			if err := wantSound(s, "made"); err != nil {
				t.Errorf("%s: after create: %v", what, err)
			}
			if err := wantMeta(s, "made", hansard.Meta{State: state}); err != nil {
				t.Errorf("%s: after create: %.200s", what, err.Error())
			}
		}
	}
}
