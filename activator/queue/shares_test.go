package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// served is a server of four slots in virtual time: clients send requests, each of which takes as long as it costs.
type served struct {
	r       *rand.Rand
	queue   waitQueue
	now     time.Duration
	running []job
	got     map[string]float64 // cost of finished requests, by client
	waited  map[string]time.Duration
	told    map[string]float64 // cost that other servers do not know yet
}

type job struct {
	client         string
	ends           time.Duration
	cost, expected float64
}

// rate is how much one slot serves in a second.
const rate = 1000

// send keeps so many requests of a client in the queue, with a mean cost.
func (s *served) send(client string, atOnce int, cost float64) {
	for c := s.queue.clients[client]; c == nil || c.count < atOnce; c = s.queue.clients[client] {
		e := &entry{Client: client, Tokens: api.Tokens(cost * (0.5 + s.r.Float64()))}
		if _, why, ok := s.queue.Enter(e, epoch.Add(s.now), 0); !ok {
			panic(why)
		}
	}
}

// until serves waiting requests up to a time. Each client keeps up its load: see send. Estimates of costs are wrong
// by up to half.
func (s *served) until(end time.Duration, load func()) {
	for s.now < end {
		load()
		for len(s.running) < 4 {
			e := s.queue.Next()
			if e == nil {
				break
			}
			cost := float64(e.Tokens)
			s.waited[e.Client] = max(s.waited[e.Client], epoch.Add(s.now).Sub(e.arrived))
			s.running = append(s.running, job{e.Client, s.now + time.Duration(cost/rate*float64(time.Second)), cost, s.charge(e.Client, cost*(0.5+s.r.Float64()))})
		}
		if len(s.running) == 0 {
			s.now = end
			return
		}
		first := 0
		for i, j := range s.running {
			if j.ends < s.running[first].ends {
				first = i
			}
		}
		j := s.running[first]
		s.running = append(s.running[:first], s.running[first+1:]...)
		s.now = j.ends
		s.got[j.client] += j.cost
		s.queue.order.Settle(clientOf(0, j.client), 0, j.cost-j.expected)
		s.told[j.client] += j.cost - j.expected
	}
}

func (s *served) charge(client string, cost float64) float64 {
	s.told[client] += cost
	s.queue.order.Charge(clientOf(0, client), 0, cost)
	return cost
}

func newServed(seed uint64) *served {
	s := &served{r: rand.New(rand.NewPCG(seed, 2)), got: map[string]float64{}, waited: map[string]time.Duration{}, told: map[string]float64{}}
	s.queue.Limit(api.Hold{Capacity: 10000, MaxBytes: 1 << 40})
	return s
}

// TestShares: a client that sends a hundred times as much takes nothing of another's share, whatever their requests
// cost, also after an hour in which the other was away, or there were no requests.
func TestShares(t *testing.T) {
	for _, tc := range []struct {
		name          string
		large, small  float64 // cost of a request of each
		before, pause bool    // the greedy one was alone for an hour; there were no requests for an hour
	}{
		{"alike", 300, 300, false, false},
		{"large requests against small ones", 2000, 100, false, false},
		{"small requests against large ones", 100, 2000, false, false},
		{"after an hour alone", 300, 300, true, false},
		{"after an hour of nothing", 300, 300, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServed(1)
			greedy := func() { s.send("greedy", 800, tc.large) }
			if tc.before {
				s.until(time.Hour, greedy)
			}
			if tc.pause {
				s.until(2*time.Hour, func() {})
				s.until(3*time.Hour, func() {})
			}
			clear(s.got)
			s.until(s.now+time.Minute, func() { greedy(); s.send("honest", 8, tc.small) })
			if share := s.got["honest"] / (s.got["honest"] + s.got["greedy"]); share < 0.45 || share > 0.55 {
				t.Errorf("the honest client got %.1f %% of what was served, want its half", 100*share)
			}
		})
	}
}

// TestSharesOfTwo: two activators exchange the costs of clients' requests ten times a second. A client has its share
// of both together, through whichever of them its requests and the greedy one's come, also after an hour of silence.
func TestSharesOfTwo(t *testing.T) {
	for _, tc := range []struct {
		name           string
		greedy, honest [2]int  // how many requests of each wait at each activator
		large, small   float64 // cost of a request of each
		want           float64 // share of the honest client
	}{
		{"both at both", [2]int{400, 400}, [2]int{8, 8}, 300, 300, 0.5},
		{"the honest one at one", [2]int{400, 400}, [2]int{0, 16}, 300, 300, 0.5},
		{"large requests against small ones", [2]int{400, 400}, [2]int{0, 16}, 2000, 100, 0.5},
		{"each at its own", [2]int{800, 0}, [2]int{0, 16}, 300, 300, 0.5},
		{"the greedy one mostly at the other", [2]int{800, 4}, [2]int{8, 8}, 300, 300, 0.5},
	} {
		for _, idle := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.name, ", after an hour of silence: ", idle), func(t *testing.T) {
				two, now := [2]*served{newServed(1), newServed(2)}, time.Duration(0)
				run := func(during time.Duration, honest bool) {
					for end := now + during; now < end; {
						now += 100 * time.Millisecond
						for k, s := range two {
							s.until(now, func() {
								s.send("greedy", tc.greedy[k], tc.large)
								if honest {
									s.send("honest", tc.honest[k], tc.small)
								}
							})
						}
						for k, s := range two {
							for client, cost := range s.told {
								two[1-k].queue.order.Elsewhere(clientOf(0, client), 0, cost)
							}
							clear(s.told)
						}
					}
				}
				if idle {
					run(time.Hour, false)
				}
				clear(two[0].got)
				clear(two[1].got)
				run(time.Minute, true)
				honest, greedy := two[0].got["honest"]+two[1].got["honest"], two[0].got["greedy"]+two[1].got["greedy"]
				if share := honest / (honest + greedy); share < tc.want-0.05 || share > tc.want+0.05 {
					t.Errorf("the honest client got %.1f %% of what was served, want %.0f", 100*share, 100*tc.want)
				}
			})
		}
	}
}
