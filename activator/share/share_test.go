package share

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config/apikey"
)

var errLost = errors.New("lost")

// site is some activators and the network between them.
type site struct {
	t   *testing.T
	mu  sync.Mutex // guards the fields below
	all map[string]*node
	// lose is the percentage of messages, and of answers, that are lost; double, of those delivered twice.
	lose, double int
	doors        bool               // they are front doors
	cut          map[string]bool    // by name: it neither receives nor is received
	between      map[[2]string]bool // two that do not reach each other
	slow         time.Duration      // how much longer a message takes
	exchanges    atomic.Int64
}

type node struct {
	*Share
	site  *site
	store *keys.Store
	cost  map[control.ClientUse]float64
	end   func() // ends its process
}

const key = "k"

func newSite(t *testing.T) *site {
	return &site{t: t, all: map[string]*node{}, cut: map[string]bool{}, between: map[[2]string]bool{}}
}

// join starts an activator that has a key with these rights.
func (s *site) join(name string, r apikey.Rights) *node {
	ctx, cancel := context.WithCancel(s.t.Context())
	n := &node{site: s, cost: map[control.ClientUse]float64{}}
	n.Share = New(name, name+fmt.Sprint(rand.Uint64()), s.doors, n, slog.New(slog.DiscardHandler))
	n.store = keys.NewStore(nil).Among(n.Share)
	n.store.Load(&apikey.File{Keys: []apikey.Key{{Name: "a", Hash: apikey.Hash(key), Rights: r}}})
	n.Tell(n.store, n)
	s.mu.Lock()
	s.all[name] = n
	s.mu.Unlock()
	s.meet()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = n.Run(ctx)
	}()
	n.end = func() {
		cancel()
		<-ended
	}
	return n
}

// leave ends an activator, and tells the others.
func (s *site) leave(n *node) {
	n.end()
	s.mu.Lock()
	delete(s.all, n.name)
	s.mu.Unlock()
	s.meet()
}

func (s *site) meet() {
	s.mu.Lock()
	var names []Activator
	for name := range s.all {
		names = append(names, Activator{Name: name, Endpoint: api.Endpoint(name)})
	}
	all := make([]*node, 0, len(s.all))
	for _, n := range s.all {
		all = append(all, n)
	}
	s.mu.Unlock()
	for _, n := range all {
		var others []Activator
		for _, a := range names {
			if a.Name != n.name {
				others = append(others, a)
			}
		}
		n.Set(others)
	}
}

// Call delivers a message like a network, in about a millisecond.
func (n *node) Call(ctx context.Context, _ string, e api.Endpoint, path string, in, out any, _ int64) error {
	s := n.site
	s.mu.Lock()
	to := s.all[string(e)]
	lostThere, lostBack, twice := rand.IntN(100) < s.lose, rand.IntN(100) < s.lose, rand.IntN(100) < s.double
	cut := s.cut[n.name] || s.cut[string(e)] || s.between[[2]string{n.name, string(e)}]
	s.exchanges.Add(1)
	slow := s.slow
	s.mu.Unlock()
	time.Sleep(slow + time.Duration(200+rand.IntN(1000))*time.Microsecond)
	switch {
	case path != control.PathUsage:
		return fmt.Errorf("called %s", path)
	case to == nil:
		return errLost // the connection is refused
	case cut || lostThere:
		<-ctx.Done()
		return ctx.Err()
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	var answer control.UsageMessage
	for range 2 {
		var m control.UsageMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			return err
		}
		answer = to.Take(m)
		if !twice {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if lostBack {
		<-ctx.Done()
		return ctx.Err()
	}
	if raw, err = json.Marshal(answer); err != nil {
		return err
	}
	return json.Unmarshal(raw, out)
}

func (n *node) ServedElsewhere(u control.ClientUse) {
	cost := u.Cost
	u.Cost = 0
	n.site.mu.Lock()
	n.cost[u] += cost
	n.site.mu.Unlock()
}

func (n *node) account() *keys.Account {
	r, _ := http.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Authorization", "Bearer "+key)
	a, err := n.store.Authenticate(r)
	if err != nil {
		n.site.t.Error(err)
	}
	return a
}

// admit admits one request.
func (n *node) admit(tokens api.Tokens) *keys.Charge {
	c, err := n.account().Admit(n.site.t.Context(), time.Now(), control.Use{Requests: 1, Running: 1, Tokens: float64(tokens)})
	if err != nil {
		return nil
	}
	return c
}

// flood sends requests through some activators for a while, each from several clients, and returns how many were
// admitted.
func flood(from []*node, every, during time.Duration) (admitted int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	end := time.Now().Add(during)
	for _, n := range from {
		for range 3 {
			all.Go(func() {
				for time.Now().Before(end) {
					if c := n.admit(0); c != nil {
						mu.Lock()
						admitted++
						mu.Unlock()
						c.End()
					}
					time.Sleep(every/2 + rand.N(every))
				}
			})
		}
	}
	all.Wait()
	return admitted
}

// TestOneLimit: a limit holds exactly, through however many activators requests come.
func TestOneLimit(t *testing.T) {
	for _, tc := range []struct {
		name       string
		of, asked  int
		limit      int64
		every      time.Duration
		lose       int
		more, less float64 // than a single activator would admit
	}{
		{name: "one", of: 1, asked: 1, limit: 600, every: 5 * time.Millisecond, more: 1, less: .99},
		{name: "two", of: 2, asked: 2, limit: 600, every: 5 * time.Millisecond, more: 1, less: .95},
		{name: "three, one is asked", of: 3, asked: 1, limit: 600, every: 5 * time.Millisecond, more: 1, less: .95},
		{name: "three, all at once", of: 3, asked: 3, limit: 3000, every: 2 * time.Millisecond, more: 1, less: .95},
		{name: "more than is asked for", of: 2, asked: 2, limit: 1e6, every: 50 * time.Millisecond, more: 1, less: 0},
		{name: "few", of: 3, asked: 3, limit: 2, every: 100 * time.Millisecond, more: 1, less: .75}, // 3 of 4: one activator's part was unused
		{name: "two, messages are lost", of: 2, asked: 2, limit: 600, every: 5 * time.Millisecond, lose: 10, more: 1.5, less: .8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				s.lose = tc.lose
				var all []*node
				for k := range tc.of {
					all = append(all, s.join(fmt.Sprint("n", k), apikey.Rights{RequestsPerMinute: tc.limit}))
				}
				synctest.Wait()
				time.Sleep(time.Second)
				got := float64(flood(all[:tc.asked], tc.every, time.Minute))
				one := 2 * float64(tc.limit) // the initial rest, and a minute's refill
				if got > one*tc.more || got < one*tc.less {
					t.Errorf("%v of %v are let in, want %v to %v of what one activator lets in", got, one, tc.less, tc.more)
				}
				t.Logf("%v of %v with %d exchanges", got, one, s.exchanges.Load())
				for _, n := range all {
					s.leave(n)
				}
			})
		})
	}
}

// TestDoorsApart: however links between front doors break, in one direction or both, and messages are lost, all together
// never admit more than one would, and each admits its part.
func TestDoorsApart(t *testing.T) {
	for _, doors := range []int{2, 3} {
		t.Run(fmt.Sprint(doors), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				s.doors, s.lose = true, 2
				const limit, rounds = 60, 60
				var all []*node
				s.between[[2]string{"n1", "n0"}] = true // they meet late
				for k := range doors {
					all = append(all, s.join(fmt.Sprint("n", k), apikey.Rights{RequestsPerMinute: limit}))
				}
				var mu sync.Mutex // guards the fields below
				whole, at, admitted := float64(limit), time.Now(), 0
				var asking sync.WaitGroup
				end := make(chan struct{})
				for _, n := range all {
					asking.Go(func() {
						for {
							select {
							case <-end:
								return
							case <-time.After(rand.N(200 * time.Millisecond)):
							}
							c := n.admit(0)
							if c == nil {
								continue
							}
							c.End()
							mu.Lock()
							now := time.Now()
							whole, at = min(limit, whole+limit*now.Sub(at).Minutes())-1, now
							admitted++
							if whole < -1e-6 {
								t.Errorf("after %s %v more than the limit are admitted", n.name, -whole)
							}
							mu.Unlock()
						}
					})
				}
				r := rand.New(rand.NewPCG(1, uint64(doors)))
				for range rounds {
					s.mu.Lock()
					clear(s.between)
					for range r.IntN(2 * doors) {
						from, to := all[r.IntN(doors)].name, all[r.IntN(doors)].name
						s.between[[2]string{from, to}] = true
						if r.IntN(2) == 0 {
							s.between[[2]string{to, from}] = true
						}
					}
					s.mu.Unlock()
					time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
				}
				close(end)
				asking.Wait()
				t.Logf("%d admitted of %v", admitted, limit*time.Since(at).Minutes())
				for _, n := range all {
					s.leave(n)
				}
			})
		})
	}
}

// TestPartOfEach: front doors that never reach each other admit equal parts of a limit, and after that no more than the
// refill. Once they meet, all of it comes through any of them again.
func TestPartOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.doors = true
		s.between[[2]string{"a", "b"}], s.between[[2]string{"b", "a"}] = true, true
		r := apikey.Rights{RequestsPerMinute: 6}
		all := []*node{s.join("a", r), s.join("b", r)}
		time.Sleep(time.Second)
		count := func(n *node) (got int) {
			for n.admit(0) != nil {
				got++
			}
			return got
		}
		for _, n := range all {
			if got := count(n); got != 3 {
				t.Errorf("%s admits %d of 6, want its part", n.name, got)
			}
		}
		time.Sleep(2 * time.Minute)
		if a, b := count(all[0]), count(all[1]); a != 3 || b != 3 {
			t.Errorf("after two minutes they admit %d and %d, want 3 and 3", a, b)
		}
		s.mu.Lock()
		clear(s.between)
		s.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if a, b := count(all[0]), count(all[1]); a != 6 || b != 0 {
			t.Errorf("when they have met, they admit %d and %d, want 6 and 0", a, b)
		}
		for _, n := range all {
			s.leave(n)
		}
	})
}

// TestDoorThatHasNotMet: a front door that is reached, but has not yet been told of earlier use, keeps to its part, and
// so do the others.
func TestDoorThatHasNotMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.doors = true
		s.between[[2]string{"b", "a"}] = true // a reaches b
		r := apikey.Rights{RequestsPerMinute: 6}
		all := []*node{s.join("a", r), s.join("b", r)}
		time.Sleep(time.Second)
		for range 3 {
			for _, n := range all {
				got := 0
				for n.admit(0) != nil {
					got++
				}
				if got != 3 {
					t.Errorf("%s admits %d, want 3", n.name, got)
				}
			}
			time.Sleep(time.Minute)
		}
		for _, n := range all {
			s.leave(n)
		}
	})
}

// TestDoorThatLies: a front door that gives back what it has not used makes nothing larger, and one that gives back
// what it had used long ago makes no limit larger than the whole.
func TestDoorThatLies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.doors = true
		r := apikey.Rights{RequestsPerMinute: 60, Concurrent: 5}
		a, b := s.join("a", r), s.join("b", r)
		time.Sleep(time.Second)
		id := a.account().ID()
		say := func(u control.Use) {
			b.Used(id, u)
			time.Sleep(2 * Every)
		}
		var running []*keys.Charge
		for c := a.admit(0); c != nil; c = a.admit(0) {
			running = append(running, c)
			say(control.Use{Requests: -10, Tokens: -10, Running: -10})
		}
		if len(running) != 5 {
			t.Errorf("%d run at once, want 5", len(running))
		}
		for _, c := range running {
			c.End()
		}
		for range 10 { // it has used much, and the limits have filled since
			say(control.Use{Requests: 60})
			time.Sleep(time.Minute)
		}
		begun, admitted := time.Now(), 0
		for range 200 {
			if c := a.admit(0); c != nil {
				admitted++
				c.End()
			}
			say(control.Use{Requests: -30})
		}
		if most := 60 + int(time.Since(begun).Seconds()) + 1; admitted > most || admitted < 60 {
			t.Errorf("%d are admitted, and the whole limit is %d", admitted, most)
		}
		s.leave(a)
		s.leave(b)
	})
}

// TestBudgets: all activators learn of the tokens and GPU-seconds that count in a day and a month.
func TestBudgets(t *testing.T) {
	for _, doors := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t)
			s.doors = doors
			r := apikey.Rights{TokensPerDay: 1000, GPUSecondsPerMonth: 100}
			a, b := s.join("a", r), s.join("b", r)
			time.Sleep(time.Second)
			c := a.admit(100)
			c.Settle(900)
			c.End()
			a.account().Spend(7)
			time.Sleep(2 * Every)
			got := b.store.Budgets()[b.account().ID()]
			for _, used := range got {
				if used.Tokens != 900 || used.GPUSeconds != 7 {
					t.Errorf("doors: %v: b knows of %v tokens and %v GPU-seconds, want 900 and 7", doors, used.Tokens, used.GPUSeconds)
				}
			}
			s.leave(a)
			s.leave(b)
		})
	}
}

// TestLimitsOverRestarts: one of two activators begins again several times, and its answers are slow. What both admit in a minute and in a
// day stays within a twentieth of the limits, and the new process knows all of it.
func TestLimitsOverRestarts(t *testing.T) {
	for _, tc := range []struct {
		doors bool
		slow  time.Duration
		r     apikey.Rights
		want  int
	}{
		{false, 0, apikey.Rights{TokensPerDay: 100_000}, 10_000},
		{false, AskFor, apikey.Rights{TokensPerDay: 100_000}, 10_000},
		{true, 0, apikey.Rights{TokensPerDay: 100_000}, 10_000},
		{false, 0, apikey.Rights{RequestsPerMinute: 600}, 1200},
		{false, 4 * AskFor, apikey.Rights{RequestsPerMinute: 600}, 1200},
		{true, 0, apikey.Rights{RequestsPerMinute: 600}, 1200},
	} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				s.doors, s.slow = tc.doors, tc.slow
				a, b := s.join("a", tc.r), s.join("b", tc.r)
				var mu sync.Mutex // guards admitted, and b
				admitted := 0
				var clients sync.WaitGroup
				end := time.Now().Add(time.Minute)
				for k := range 6 {
					clients.Go(func() {
						for time.Now().Before(end) {
							mu.Lock()
							n := []*node{a, b}[k%2]
							mu.Unlock()
							if c := n.admit(10); c != nil {
								c.Settle(10)
								c.End()
								mu.Lock()
								admitted++
								mu.Unlock()
							}
							time.Sleep(10 * time.Millisecond)
						}
					})
				}
				for range 5 {
					time.Sleep(9 * time.Second)
					b.end()
					again := s.join("b", tc.r)
					mu.Lock()
					b = again
					mu.Unlock()
				}
				clients.Wait()
				if float64(admitted) > 1.05*float64(tc.want) || float64(admitted) < .95*float64(tc.want) {
					t.Errorf("%d are admitted, want %d", admitted, tc.want)
				}
				t.Logf("%d of %d", admitted, tc.want)
				s.leave(a)
				s.leave(b)
			})
		})
	}
}

// TestDoorWithImpossibleNumbers: no number that a front door reports makes room for requests.
func TestDoorWithImpossibleNumbers(t *testing.T) {
	for name, m := range map[string]func(account string) control.UsageMessage{
		"less than nothing at the beginning": func(id string) control.UsageMessage {
			return control.UsageMessage{All: map[string]control.Use{id: {Running: -3}}}
		},
		"more than an int holds": func(id string) control.UsageMessage {
			return control.UsageMessage{All: map[string]control.Use{}, Parts: []control.UsagePart{{Number: 1, Accounts: map[string]control.Use{id: {Running: 1e19}}}}}
		},
		"more than a float holds": func(id string) control.UsageMessage {
			most := map[string]control.Use{id: {Requests: 1e308, Running: 1e308}}
			return control.UsageMessage{All: map[string]control.Use{}, Parts: []control.UsagePart{{Number: 1, Accounts: most}, {Number: 2, Accounts: most}, {Number: 3, Accounts: most}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				s.doors = true
				a := s.join("a", apikey.Rights{Concurrent: 5})
				a.Set([]Activator{{Name: "honest"}, {Name: "liar"}})
				id := a.account().ID()
				a.Take(control.UsageMessage{From: "honest", Run: "1", All: map[string]control.Use{id: {Running: 5}}})
				lie := m(id)
				lie.From, lie.Run = "liar", "1"
				a.Take(lie)
				if a.admit(0) != nil {
					t.Error("one is let in beside the five that run")
				}
				a.Set(nil)
				s.leave(a)
			})
		})
	}
}

// TestAnswerOfAnother: an answer in another's name counts as none.
func TestAnswerOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.doors = true
		a := s.join("a", apikey.Rights{RequestsPerMinute: 60})
		b := s.join("b", apikey.Rights{RequestsPerMinute: 60})
		b.mu.Lock()
		b.name = "c"
		b.mu.Unlock()
		time.Sleep(5 * time.Second)
		if _, _, _, apart := a.Among("key " + apikey.Hash(key)); apart == 0 {
			t.Error("a door that answers in another's name counts as one that is reached")
		}
		s.leave(a)
		b.end()
	})
}

// TestTokens: all activators learn of answers' tokens, when they have ended.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		r := apikey.Rights{TokensPerMinute: 6000}
		a, b := s.join("a", r), s.join("b", r)
		time.Sleep(time.Second)
		c := a.admit(1000)
		c.Settle(5900)
		c.End()
		time.Sleep(2 * Every)
		if c := b.admit(1000); c != nil {
			t.Error("b lets in what a has used")
		}
		time.Sleep(10 * time.Second)
		if c := b.admit(1000); c == nil {
			t.Error("b refuses what is there again")
		} else {
			c.End()
		}
		s.leave(a)
		s.leave(b)
	})
}

// TestLimitsChangeWhileRequestsRun: a request that began before its key got a limit, or ends after the limit is lifted, is
// counted as often as it is taken back.
func TestLimitsChangeWhileRequestsRun(t *testing.T) {
	for name, limited := range map[string]bool{"lifted": true, "set": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				rights := map[bool]apikey.Rights{true: {Concurrent: 2}}
				a, b := s.join("a", rights[limited]), s.join("b", rights[limited])
				change := func(r apikey.Rights) {
					for _, n := range []*node{a, b} {
						n.store.Load(&apikey.File{Keys: []apikey.Key{{Name: "a", Hash: apikey.Hash(key), Rights: r}}})
					}
				}
				time.Sleep(time.Second)
				c := a.admit(1)
				time.Sleep(time.Second)
				change(rights[!limited])
				c.End()
				time.Sleep(time.Second)
				change(rights[true])
				c = a.admit(1)
				time.Sleep(time.Second)
				third := s.join("c", rights[true])
				time.Sleep(time.Second)
				for _, n := range []*node{b, third} {
					if c := n.admit(1); c == nil {
						t.Errorf("%s lets in none beside one that runs, of two", n.name)
					} else if n.admit(1) != nil {
						t.Errorf("%s lets in two beside one that runs, of two", n.name)
					} else {
						c.End()
					}
					time.Sleep(time.Second)
				}
				c.End()
				s.leave(a)
				s.leave(b)
				s.leave(third)
			})
		})
	}
}

// TestConcurrent: the limit of running requests holds across activators; the requests of one that is gone no longer
// count.
func TestConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		r := apikey.Rights{Concurrent: 5}
		all := []*node{s.join("a", r), s.join("b", r), s.join("c", r)}
		time.Sleep(time.Second)
		running, most := map[*node][]*keys.Charge{}, 0
		count := func() (n int) {
			for _, of := range running {
				n += len(of)
			}
			return n
		}
		for range 1000 {
			n := all[rand.IntN(3)]
			if of := running[n]; len(of) > 0 && rand.IntN(3) == 0 {
				of[0].End()
				running[n] = of[1:]
			} else if c := n.admit(1); c != nil {
				running[n] = append(running[n], c)
			}
			most = max(most, count())
			time.Sleep(rand.N(30 * time.Millisecond))
		}
		if most != 5 {
			t.Errorf("%d run at once, want 5", most)
		}
		for count() < 5 {
			if c := all[0].admit(1); c != nil {
				running[all[0]] = append(running[all[0]], c)
			}
			time.Sleep(Every)
		}
		if c := all[1].admit(1); c != nil {
			t.Error("a sixth is let in")
		}
		s.leave(all[0])
		delete(running, all[0])
		for range 5 - count() {
			if c := all[1].admit(1); c == nil {
				t.Error("the places of an activator that is gone are not free")
			} else {
				defer c.End()
			}
			time.Sleep(2 * Every)
		}
		if c := all[2].admit(1); c != nil {
			t.Error("one too many is let in after one has left")
		}
		s.leave(all[1])
		s.leave(all[2])
	})
}

// TestOneThatBegins: a new activator knows the earlier use, and waits for it.
func TestOneThatBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		r := apikey.Rights{RequestsPerMinute: 60}
		a := s.join("a", r)
		for a.admit(0) != nil {
		}
		s.slow = 4 * AskFor
		begun := time.Now()
		b := s.join("b", r)
		if got := flood([]*node{b}, time.Millisecond, time.Millisecond); got > int(time.Since(begun).Seconds()) {
			t.Errorf("one that has just begun lets in %d after %s", got, time.Since(begun))
		}
		s.mu.Lock()
		s.slow = 0
		s.mu.Unlock()
		time.Sleep(time.Until(begun.Add(10 * time.Second))) // 10 are available again
		n := 0
		for range 20 {
			for _, at := range []*node{a, b} {
				if at.admit(0) != nil {
					n++
				}
			}
		}
		if n < 9 || n > 10 {
			t.Errorf("%d are let in after ten seconds, want 10", n)
		}
		s.leave(a)
		s.leave(b)
	})
}

// TestOneThatCannotBeReached: an unreachable activator is waited for once, then limits are enforced by the known use;
// when it is back, both know everything.
func TestOneThatCannotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		r := apikey.Rights{RequestsPerMinute: 60}
		a, b := s.join("a", r), s.join("b", r)
		time.Sleep(time.Second)
		s.mu.Lock()
		s.cut["b"] = true
		s.mu.Unlock()
		begun, n := time.Now(), 0
		for a.admit(0) != nil {
			n++
		}
		if n < 60 || n > 70 {
			t.Errorf("%d are let in, want 60 and what came meanwhile", n)
		}
		if took := time.Since(begun); took > 40*AskFor {
			t.Errorf("they have waited for %v", took)
		}
		s.mu.Lock()
		delete(s.cut, "b")
		s.mu.Unlock()
		time.Sleep(callFor + 2*retryAfter)
		if got := flood([]*node{b}, time.Millisecond, 100*time.Millisecond); got > 7 {
			t.Errorf("%d are let in at the other, which knows what was used", got)
		}
		s.leave(a)
		s.leave(b)
	})
}

// TestNothingCountsTwice: messages are lost and duplicated, and processes restart; in the end all know the same.
func TestNothingCountsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		all := []*node{s.join("a", apikey.Rights{}), s.join("b", apikey.Rights{})}
		time.Sleep(time.Second)
		s.mu.Lock()
		s.lose, s.double = 30, 30
		s.mu.Unlock()
		want := [2]float64{}
		for range 300 {
			k := rand.IntN(2)
			cost := float64(rand.IntN(200) - 50)
			want[1-k] += cost
			all[k].Served(control.ClientUse{Function: "default/m", Client: "c", Priority: 2, Cost: cost})
			time.Sleep(rand.N(200 * time.Millisecond))
		}
		s.mu.Lock()
		s.lose = 0
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		for k, n := range all {
			s.mu.Lock()
			if got := n.cost[control.ClientUse{Function: "default/m", Client: "c", Priority: 2}]; got != want[k] {
				t.Errorf("%s has heard of a cost of %v, want %v", n.name, got, want[k])
			}
			s.mu.Unlock()
			n.mu.Lock()
			for _, p := range n.peers {
				if len(p.sent)+len(p.accounts)+len(p.clients) != 0 {
					t.Errorf("%s keeps what the other knows", n.name)
				}
			}
			n.mu.Unlock()
		}
		again := s.exchanges.Load()
		time.Sleep(time.Minute)
		if s.exchanges.Load() != again {
			t.Error("they talk though nothing has happened")
		}
		s.leave(all[0])
		s.leave(all[1])
	})
}

// TestAStranger: an unknown activator gets an empty answer.
func TestAStranger(t *testing.T) {
	s := newSite(t)
	n := s.join("a", apikey.Rights{RequestsPerMinute: 60})
	n.admit(0)
	got := n.Take(control.UsageMessage{From: "x", Run: "1", Meet: true, Parts: []control.UsagePart{{Number: 1, Accounts: map[string]control.Use{"key " + apikey.Hash(key): {Requests: 60}}}}})
	if got.All != nil || got.Parts != nil || got.Taken != 0 {
		t.Errorf("it learns %+v", got)
	}
	if n.admit(0) == nil {
		t.Error("what it says counts")
	}
	s.leave(n)
}
