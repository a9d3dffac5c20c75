package knative

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const fn, other = api.FunctionName("default/a-00001"), api.FunctionName("default/b-00001")

func gpu(n int) []api.DeviceID { return []api.DeviceID{api.DeviceID(fmt.Sprintf("GPU-%d", n))} }

// two is a node with two GPUs that Kubernetes gives away, of which so many are free.
func two(free int) map[string]Node { return map[string]Node{"n": {Free: free, Memory: 100}} }

// print writes actions down, without their reasons.
func print(acts []Action) string {
	var lines []string
	for _, a := range acts {
		words := []string{string(a.Kind)}
		for _, w := range []string{string(a.Requester), string(a.Provider), string(a.Path)} {
			if w != "" {
				words = append(words, w)
			}
		}
		if a.Kind == Make {
			words = append(words, fmt.Sprint(a.Devices))
		}
		for _, d := range a.Delete {
			words = append(words, "-"+string(d))
		}
		if a.N > 0 {
			words = append(words, fmt.Sprint(a.N))
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "; ")
}

func TestPlan(t *testing.T) {
	sleeper := Provider{ID: "p", Function: fn, Node: "n", Devices: gpu(0), Asleep: true, Process: true}
	up := Provider{ID: "p", Function: fn, Node: "n", Devices: gpu(0), Bound: "r", Since: now}
	here := Requester{ID: "r", Function: fn, Node: "n", Devices: gpu(0), Since: now}
	beside := Requester{ID: "r", Function: fn, Node: "n", Devices: gpu(1), Since: now}
	bound := here
	bound.Bound = "p"
	leaving := bound
	leaving.Leaving = true
	wake := Want{ID: 1, Function: fn, Provider: "p", Node: "n", Devices: gpu(0), Need: 60, Since: now}
	start := Want{ID: 1, Function: fn, Node: "n", Devices: gpu(0), Need: 60, Since: now}
	with := func(p Provider, change func(*Provider)) Provider { change(&p); return p }
	claims := func(n int) map[api.FunctionName]int { return map[api.FunctionName]int{fn: n} }
	for _, tt := range []struct {
		name string
		s    State
		want string
	}{
		{"a want makes a claim", State{Wants: []Want{start}, Nodes: two(2)}, "claim 1"},
		{"a claim on its way is enough", State{Wants: []Want{start}, Claims: claims(1), Nodes: two(2)}, ""},
		{"a requester that has not said where it is", State{Wants: []Want{start}, Claims: claims(1), Nodes: two(1),
			Requesters: []Requester{{ID: "r", Function: fn, Node: "n", Since: now}}}, ""},
		{"cold", State{Wants: []Want{start}, Claims: claims(1), Nodes: two(1), Requesters: []Requester{here}}, "make r cold [GPU-0]"},
		{"hot", State{Wants: []Want{wake}, Claims: claims(1), Nodes: two(1), Requesters: []Requester{here}, Providers: []Provider{sleeper}}, "wake r p hot"},
		{"a start finds a sleeper", State{Wants: []Want{start}, Claims: claims(1), Nodes: two(1), Requesters: []Requester{here}, Providers: []Provider{sleeper}}, "wake r p hot"},
		{"warm", State{Wants: []Want{wake}, Claims: claims(1), Nodes: two(1), Requesters: []Requester{here},
			Providers: []Provider{with(sleeper, func(p *Provider) { p.Process = false })}}, "wake r p warm"},
		{"it is up already", State{Wants: []Want{wake}, Claims: claims(1), Nodes: two(1), Requesters: []Requester{bound}, Providers: []Provider{up}}, "done p"},
		{"landed beside: another try", State{Wants: []Want{wake}, Claims: claims(1), Nodes: two(1), Requesters: []Requester{beside}, Providers: []Provider{sleeper}}, "claim 1"},
		{"landed beside though a start was wanted: another try", State{Wants: []Want{start}, Claims: claims(1), Nodes: two(1), Requesters: []Requester{beside}, Providers: []Provider{sleeper}}, "claim 1"},
		{"landed beside, while the claim of before still goes", State{Wants: []Want{wake}, Claims: claims(1), Nodes: two(0), Providers: []Provider{sleeper},
			Requesters: []Requester{beside, {ID: "v", Function: other, Node: "n", Devices: gpu(0), Leaving: true, Released: true}}}, "claim 1"},
		{"landed beside, and the next has not said where it is", State{Wants: []Want{wake}, Claims: claims(2), Nodes: two(0), Providers: []Provider{sleeper},
			Requesters: []Requester{beside, {ID: "r2", Function: fn, Node: "n", Since: now}}}, ""},
		{"landed beside, and no GPU is free", State{Wants: []Want{wake}, Claims: claims(1), Nodes: two(0), Requesters: []Requester{beside}, Providers: []Provider{sleeper}}, "make r cold [GPU-1]"},
		{"landed beside, and patience is over", State{Wants: []Want{func() Want { w := wake; w.Since = now.Add(-time.Minute); return w }()},
			Claims: claims(1), Nodes: two(1), Requesters: []Requester{beside}, Providers: []Provider{sleeper}}, "make r cold [GPU-1]"},
		{"landed beside, on another sleeper", State{Wants: []Want{wake}, Claims: claims(1), Nodes: two(1), Requesters: []Requester{beside},
			Providers: []Provider{sleeper, with(sleeper, func(p *Provider) { p.ID, p.Devices = "q", gpu(1) })}}, "wake r q hot"},
		{"the claim follows: its devices are going", State{Wants: []Want{wake}, Claims: claims(1), Nodes: two(0), Providers: []Provider{sleeper},
			Requesters: []Requester{{ID: "v", Function: other, Node: "n", Devices: gpu(0), Leaving: true, Released: true}}}, "wake p hot"},
		{"not while another GPU is free", State{Wants: []Want{wake}, Claims: claims(1), Nodes: two(1), Providers: []Provider{sleeper},
			Requesters: []Requester{{ID: "v", Function: other, Node: "n", Devices: gpu(0), Leaving: true, Released: true}}}, ""},
		{"not while another is awake there", State{Wants: []Want{wake}, Claims: map[api.FunctionName]int{fn: 1, other: 1}, Nodes: two(0),
			Providers:  []Provider{sleeper, {ID: "v", Function: other, Node: "n", Devices: gpu(0), Bound: "rv", Since: now}},
			Requesters: []Requester{{ID: "rv", Function: other, Node: "n", Devices: gpu(0), Bound: "v", Since: now}}}, ""},
		{"our own GPUs: the wake goes ahead", State{Wants: []Want{wake}, Nodes: map[string]Node{"n": {Owned: true, Free: 2, Memory: 100}}, Providers: []Provider{sleeper}},
			"wake p hot; claim 1"},
		{"our own GPUs: made where it was placed", State{Wants: []Want{start}, Nodes: map[string]Node{"n": {Owned: true, Free: 2, Memory: 100}}}, "make cold [GPU-0]; claim 1"},
		{"our own GPUs: any claim will do", State{Claims: claims(1), Nodes: map[string]Node{"n": {Owned: true, Free: 1, Memory: 100}},
			Requesters: []Requester{beside}, Providers: []Provider{with(up, func(p *Provider) { p.Bound = "" })}}, "bind r p"},
		{"it sleeps: its claim goes", State{Claims: claims(1), Nodes: two(1), Requesters: []Requester{bound},
			Providers: []Provider{with(up, func(p *Provider) { p.Asleep = true })}}, "unbind r p; release r"},
		{"the requester is deleted: its provider sleeps first", State{Claims: claims(1), Nodes: two(1), Requesters: []Requester{leaving}, Providers: []Provider{up}}, "sleep p"},
		{"and then the claim goes", State{Claims: claims(1), Nodes: two(1), Requesters: []Requester{leaving},
			Providers: []Provider{with(up, func(p *Provider) { p.Asleep = true })}}, "unbind r p; release r"},
		{"one that will not sleep ends", State{Claims: claims(1), Nodes: two(1), Requesters: []Requester{leaving},
			Providers: []Provider{with(up, func(p *Provider) { p.Stuck = true })}}, "delete p"},
		{"and holds its claim until it is gone", State{Claims: claims(1), Nodes: two(1), Requesters: []Requester{leaving},
			Providers: []Provider{with(up, func(p *Provider) { p.Leaving = true })}}, ""},
		{"a provider died: its claim waits a moment", State{Claims: claims(1), Nodes: two(1), Requesters: []Requester{bound}}, "unbind r"},
		{"and then goes", State{Claims: claims(1), Nodes: two(1), Requesters: []Requester{func() Requester { r := here; r.Since = now.Add(-time.Minute); return r }()}}, "release r"},
		{"nothing is made where one still ends", State{Wants: []Want{start}, Claims: claims(1), Nodes: two(1), Requesters: []Requester{here},
			Providers: []Provider{with(up, func(p *Provider) { p.ID, p.Bound, p.Leaving = "old", "", true })}}, ""},
		{"the claim came elsewhere", State{Claims: claims(1), Nodes: two(1), Requesters: []Requester{beside}, Providers: []Provider{with(up, func(p *Provider) { p.Bound = "" })}},
			"sleep p"},
		{"no claim came", State{Claims: claims(1), Nodes: two(1), Providers: []Provider{with(up, func(p *Provider) { p.Bound, p.Since = "", now.Add(-time.Hour) })}}, "sleep p"},
		{"one from before a restart is heard first", State{Nodes: two(1), Providers: []Provider{with(up, func(p *Provider) { p.Bound, p.Unheard = "", true })}}, ""},
		{"room is made by who was used longest ago", State{Wants: []Want{start}, Claims: claims(1), Nodes: two(1), Requesters: []Requester{here}, Providers: []Provider{
			{ID: "x", Function: other, Node: "n", Devices: gpu(0), Asleep: true, Residue: 25, Used: now.Add(-time.Hour)},
			{ID: "y", Function: other, Node: "n", Devices: gpu(0), Asleep: true, Residue: 25, Used: now}}}, "make r cold-freed [GPU-0] -x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.s.Now = now
			acts, _ := Plan(tt.s)
			if got := print(acts); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			for _, a := range acts {
				if a.Reason == "" {
					t.Errorf("%s has no reason", a.Kind)
				}
			}
		})
	}
}

// A plan looks again when time alone changes what is to be done.
func TestPlanLooksAgain(t *testing.T) {
	s := State{Now: now, Claims: map[api.FunctionName]int{fn: 1}, Nodes: two(1), Requesters: []Requester{{ID: "r", Function: fn, Node: "n", Devices: gpu(0), Since: now}}}
	acts, next := Plan(s)
	if len(acts) != 0 || !next.Equal(now.Add(10*time.Second)) {
		t.Errorf("got %s and %v, want nothing and in 10 s", print(acts), next.Sub(now))
	}
	s.Now = next
	if acts, _ = Plan(s); print(acts) != "release r" {
		t.Errorf("then got %s, want the release", print(acts))
	}
}

// world carries plans out at once, as the cluster would in time, and looks that no two
// providers are up on one device.
type world struct {
	t     *testing.T
	s     State
	next  int
	wants int
}

func (w *world) claimed(d api.DeviceID) bool {
	return slices.ContainsFunc(w.s.Requesters, func(r Requester) bool { return slices.Contains(r.Devices, d) })
}

func (w *world) provider(id api.InstanceID) *Provider {
	for k := range w.s.Providers {
		if w.s.Providers[k].ID == id {
			return &w.s.Providers[k]
		}
	}
	return nil
}

func (w *world) requester(id api.InstanceID) *Requester {
	for k := range w.s.Requesters {
		if w.s.Requesters[k].ID == id {
			return &w.s.Requesters[k]
		}
	}
	return nil
}

func (w *world) settle(pick func(n int) int) {
	for round := 0; ; round++ {
		w.land(pick)
		free := 0
		for d := range 2 {
			if !w.claimed(gpu(d)[0]) {
				free++
			}
		}
		w.s.Nodes = two(free)
		acts, next := Plan(w.s)
		if len(acts) == 0 {
			if next.IsZero() {
				return
			}
			w.s.Now = next
		}
		if round > 200 {
			w.t.Fatalf("it never settles: %s", print(acts))
		}
		for _, a := range acts {
			w.carryOut(a)
		}
		up := map[api.DeviceID]api.InstanceID{}
		for _, v := range w.s.Providers {
			for _, d := range v.Devices {
				if !v.Asleep && up[d] != "" {
					w.t.Fatalf("%s and %s are up on %s", up[d], v.ID, d)
				}
				if !v.Asleep {
					up[d] = v.ID
				}
			}
		}
	}
}

// land gives requesters that wait GPUs.
func (w *world) land(pick func(n int) int) {
	for k := range w.s.Requesters {
		r := &w.s.Requesters[k]
		if len(r.Devices) > 0 {
			continue
		}
		var free []int
		for d := range 2 {
			if !w.claimed(gpu(d)[0]) {
				free = append(free, d)
			}
		}
		if len(free) > 0 {
			r.Node, r.Devices = "n", gpu(free[pick(len(free))])
		}
	}
}

func (w *world) carryOut(a Action) {
	r, v := w.requester(a.Requester), w.provider(a.Provider)
	take := func() { w.s.Wants = slices.DeleteFunc(w.s.Wants, func(x Want) bool { return x.ID == a.Want }) }
	tie := func() {
		if r != nil {
			r.Bound, v.Bound, r.Spent = v.ID, r.ID, false
		}
	}
	switch a.Kind {
	case Claim:
		for range a.N {
			w.next++
			w.s.Requesters = append(w.s.Requesters, Requester{ID: api.InstanceID(fmt.Sprintf("r%d", w.next)), Function: a.Function, Since: w.s.Now})
			w.s.Claims[a.Function]++
		}
	case Wake:
		v.Asleep, v.Used = false, w.s.Now
		tie()
		take()
	case Make:
		w.next++
		id := api.InstanceID(fmt.Sprintf("p%d", w.next))
		w.s.Providers = append(w.s.Providers, Provider{ID: id, Function: a.Function, Node: a.Node, Devices: a.Devices, Process: true, Since: w.s.Now, Used: w.s.Now})
		v = w.provider(id)
		tie()
		take()
	case Done:
		take()
	case Bind:
		tie()
	case Unbind:
		if r != nil {
			r.Bound, r.Since, r.Spent = "", w.s.Now, v != nil && v.Asleep
		}
		if v != nil {
			v.Bound = ""
		}
	case Sleep:
		v.Asleep = true
	case Release:
		w.s.Claims[a.Function]--
		w.s.Requesters = slices.DeleteFunc(w.s.Requesters, func(x Requester) bool { return x.ID == a.Requester })
	}
}

// FuzzPlan has functions sleep, wake and lose their pods in any order: plans settle, no
// two providers are up on one device, and what is up has its claim.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 0, 4, 1, 9, 8, 7})
	f.Add([]byte("wake and sleep, again and again; and now and then a pod goes"))
	f.Fuzz(func(t *testing.T, script []byte) {
		w := &world{t: t, s: State{Now: now, Claims: map[api.FunctionName]int{}}}
		turn := 0
		pick := func(n int) int { turn += 7; return turn % n }
		for _, b := range script[:min(len(script), 60)] {
			name := api.FunctionName(fmt.Sprintf("default/f%d", b%3))
			k := slices.IndexFunc(w.s.Providers, func(v Provider) bool { return v.Function == name })
			switch up := slices.ContainsFunc(w.s.Providers, func(v Provider) bool { return v.Function == name && !v.Asleep }); {
			case b%5 == 4 && k >= 0: // it dies
				w.s.Providers = slices.Delete(w.s.Providers, k, k+1)
			case up:
				for k := range w.s.Providers {
					if w.s.Providers[k].Function == name {
						w.s.Providers[k].Asleep = true
					}
				}
			default:
				awake := 0
				for k := range w.s.Providers {
					if v := &w.s.Providers[k]; !v.Asleep {
						if awake++; awake == 2 { // a victim
							v.Asleep = true
						}
					}
				}
				w.wants++
				want := Want{ID: w.wants, Function: name, Node: "n", Devices: gpu(int(b) % 2), Need: 60, Since: w.s.Now}
				if k >= 0 {
					want.Provider, want.Devices = w.s.Providers[k].ID, w.s.Providers[k].Devices
				}
				w.s.Wants = append(w.s.Wants, want)
			}
			w.settle(pick)
		}
		if len(w.s.Wants) > 0 {
			t.Errorf("open for ever: %+v", w.s.Wants)
		}
		for _, v := range w.s.Providers {
			r := w.requester(v.Bound)
			if !v.Asleep && (r == nil || !equal(r.Devices, v.Devices)) {
				t.Errorf("%s is up on %v and its claim is %+v", v.ID, v.Devices, r)
			}
		}
		for _, r := range w.s.Requesters {
			if r.Bound == "" {
				t.Errorf("%s claims for nobody", r.ID)
			}
		}
	})
}
