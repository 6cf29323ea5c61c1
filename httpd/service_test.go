package httpd

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// serveCrowd serves this many followers, each of which gets bytes in a given time, and returns
// how long it took in all.
func serveCrowd(s *service, followers, bytes int, each time.Duration) time.Duration {
	began := time.Now()
	var wg sync.WaitGroup
	for range followers {
		wg.Go(func() {
			done, err := s.begin(context.Background())
			if err != nil {
				panic(err)
			}
			time.Sleep(each)
			done(bytes)
		})
	}
	wg.Wait()
	return time.Since(began)
}

// occupy takes all slots at once.
func occupy(t *testing.T, s *service) (release func()) {
	t.Helper()
	var all []func(int)
	for range cap(s.slots) {
		done, err := s.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, done)
	}
	return func() {
		for _, done := range all {
			done(1)
		}
	}
}

// TestServiceRests: a crowd is served with rests, which are longer while sessions grow, and
// longest if they grow faster than the crowd can be served; a few followers are served at once.
// All in the time of a bubble, on any number of cores.
func TestServiceRests(t *testing.T) {
	const (
		followers = 100
		bytes     = 1 << 20
		each      = 2 * time.Millisecond
	)
	serve := func(ask int) time.Duration {
		var took time.Duration
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			slots := cap(s.slots)
			// It knows its own speed, and nothing is new.
			serveCrowd(s, slots, bytes, each)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			if ask > 0 {
				wg.Go(func() {
					for every := time.NewTicker(gatherMax); ; {
						s.ask(time.Now(), ask*slots)
						select {
						case <-every.C:
						case <-stop:
							return
						}
					}
				})
				synctest.Wait()
			}
			took = serveCrowd(s, followers*slots, bytes, each)
			close(stop)
			wg.Wait()
		})
		return took
	}
	work := followers * each
	// At one MiB in 2 ms a slot sends 50 MiB in the time of one gathering, and 8 in the sixth of
	// the time that growth leaves it.
	quiet, growth, flood := serve(0), serve(4*bytes), serve(40*bytes)
	for _, c := range []struct {
		name string
		took time.Duration
		rest time.Duration
	}{{"quiet", quiet, quietRest}, {"growth", growth, growthRest}, {"flood", flood, floodRest}} {
		// The last few are not a crowd and have no rests.
		least, most := (work-2*crowd*each)*(1+c.rest), work*(1+c.rest)
		if c.took < least || c.took > most {
			t.Errorf("%s: a crowd with %v of work took %v, want %v to %v", c.name, work, c.took, least, most)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		s.ask(time.Now(), 1)
		slots := cap(s.slots)
		want := time.Duration((crowd+slots-1)/slots) * each
		if took := serveCrowd(s, crowd, bytes, each); took != want {
			t.Errorf("a few took %v, want %v", took, want)
		}
	})
}

// TestServiceFloodEnds: when requests stop coming the crowd is soon served as before; and a
// follower that reads nothing delays the others only for a moment.
func TestServiceFloodEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		serveCrowd(s, 1, 1<<20, time.Millisecond)
		s.ask(time.Now(), 1<<40)
		if r := s.rest(time.Now(), 1); r != floodRest {
			t.Errorf("in a flood the rest is %v", r)
		}
		time.Sleep(lasts)
		if r := s.rest(time.Now(), 1); r != quietRest {
			t.Errorf("after the flood the rest is %v", r)
		}
		s = newService()
		release := occupy(t, s)
		if took := serveCrowd(s, 1, 1, 0); took != serveMax {
			t.Errorf("behind those who take nothing it took %v, want %v", took, serveMax)
		}
		release()
	})
}

// TestServiceRound: however many follow a flood, each is served again before it takes the server
// for dead.
func TestServiceRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const followers, each = 1000, 2 * time.Millisecond
		s := newService()
		s.floods.Store(time.Now().Add(time.Hour).UnixNano())
		var longest atomic.Int64
		var wg sync.WaitGroup
		for range followers * cap(s.slots) {
			wg.Go(func() {
				var last time.Time
				for i := range 4 {
					done, err := s.begin(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if i == 1 || i == 2 { // in the first and the last round not all take part
						if gap := time.Since(last); gap > time.Duration(longest.Load()) {
							longest.Store(int64(gap))
						}
					}
					last = time.Now()
					time.Sleep(each)
					done(1 << 20)
				}
			})
		}
		wg.Wait()
		if got := time.Duration(longest.Load()); got > roundMax*11/10 || got < roundMax/2 {
			t.Errorf("%d followers of a flood were served every %v, want about %v", followers, got, roundMax)
		}
	})
}

// TestServiceCalledOff: a follower that no longer wants to be served does not wait.
func TestServiceCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no time passes, no deadline is reached
		s := newService()
		release := occupy(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(serveMax/2, cancel)
		if _, err := s.begin(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("begin: %v, want Canceled", err)
		}
		if n := s.waiting.Load(); n != 0 {
			t.Errorf("%d wait", n)
		}
		release()
	})
}
