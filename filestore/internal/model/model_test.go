package model

import (
	"os"
	"testing"
)

// workers limits searches to two at a time: each may need a gigabyte.
var workers = make(chan struct{}, 2)

func run(t *testing.T, cfg *Config, rules Rules) Result {
	t.Helper()
	workers <- struct{}{}
	defer func() { <-workers }()
	r := Search(cfg, rules, 0)
	t.Log(r)
	return r
}

func torture() bool { return os.Getenv("HANSARD_TORTURE") != "" }

func find(t *testing.T, name string) *Config {
	t.Helper()
	for _, cfg := range append(Configs, Torture...) {
		if cfg.Name == name {
			return cfg
		}
	}
	t.Fatalf("no configuration %q", name)
	return nil
}

// atLeast is how much a search must have seen, so that an empty world does not
// pass for a safe one.
var atLeast = map[string]struct{ states, acked, relied int }{
	"kill":              {100_000, 3, 0},
	"open":              {200_000, 3, 0},
	"lap":               {100_000, 4, 0},
	"cut":               {300_000, 3, 0},
	"eio":               {500_000, 3, 0},
	"eio, three":        {20_000, 2, 0},
	"eio, late":         {300_000, 4, 0},
	"eio, recovery":     {150_000, 3, 0},
	"eio, cut":          {15_000, 2, 0},
	"threads":           {15_000, 3, 0},
	"log eio":           {200_000, 2, 0},
	"log eio, recovery": {25_000, 2, 0},
	"log eio, copy":     {2_000, 2, 0},
	"control":           {60_000, 2, 0},
	"control, lap":      {40_000, 3, 0},
	"control, eio":      {40_000, 2, 0},
	"control, cut":      {25_000, 2, 0},
	"full disk":         {40_000, 2, 0},
	"pad":               {100_000, 3, 0},
	"pad, solo":         {500, 2, 0},
	"group":             {6_000, 5, 0},
	"caches":            {150_000, 5, 0},
	"caches, eio":       {8_000, 3, 0},
	"flip":              {10_000, 4, 0},
	"solo":              {150_000, 3, 0},
	"keys":              {40_000, 1, 1},
	"conflict":          {25_000, 2, 1},
	"delete":            {80_000, 2, 1},
	"turn":              {20_000, 3, 1},
	"release":           {80_000, 4, 1},
	"restored":          {1_500, 2, 1},
}

func TestProtocolHolds(t *testing.T) {
	configs := Configs
	if torture() {
		configs = append(configs, Torture...)
	}
	for _, cfg := range configs {
		t.Run(cfg.Name, func(t *testing.T) {
			t.Parallel()
			want := atLeast[cfg.Name]
			if testing.Short() && want.states > 100_000 {
				t.Skip("a large configuration")
			}
			r := run(t, cfg, AllRules)
			if r.Broken != "" {
				t.Fatalf("%s\n%s", r.Broken, r.Trace)
			}
			if !r.Complete || r.Bounded > 0 {
				t.Errorf("complete %v, %d steps left out; want everything", r.Complete, r.Bounded)
			}
			if r.States < want.states || r.Acked < max(want.acked, 1) || r.Relied < want.relied {
				t.Errorf("%d states, %d acknowledged, %d relied on; want at least %+v", r.States, r.Acked, r.Relied, want)
			}
		})
	}
}

func TestConfigsAreMeasured(t *testing.T) {
	for _, cfg := range Configs {
		if atLeast[cfg.Name].states == 0 {
			t.Errorf("%s: nothing says how much it must show", cfg.Name)
		}
	}
}
