package decide

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// alternate runs a world in which change sets the users every step, for so long, and
// counts what was begun.
func alternate(s *sim, step, long time.Duration, change func(round int)) map[Kind]int {
	count := map[Kind]int{}
	s.watch = func(actions []Action) {
		for _, a := range actions {
			count[a.Kind]++
		}
	}
	for round := range int(long / step) {
		change(round)
		s.run(step, nil)
	}
	return count
}

// TestNoFlapping checks that demand which alternates faster than instances come and go
// does not make them come and go.
func TestNoFlapping(t *testing.T) {
	spec := func(name string, edit func(*api.Function)) api.Function {
		f := api.Function{Name: api.NewFunctionName("", name), Concurrency: 4, MaxScale: 3, Memory: api.Memory{Host: api.GiB}, SleepAfter: 30 * time.Second}
		edit(&f)
		return f.WithDefaults()
	}
	t.Run("one function's scale", func(t *testing.T) {
		s := newSim()
		s.declare(spec("a", func(*api.Function) {}))
		count := alternate(s, 2*time.Second, 10*time.Minute, func(round int) { s.use("default/a", 1+8*(round%2)) })
		if ups := count[Start] + count[Wake]; ups != 3 || count[Sleep]+count[Stop] != 0 {
			t.Errorf("1 and 9 requests in turn, every 2 s: want 3 instances that stay, have %v", count)
		}
	})
	t.Run("two functions that are both busy", func(t *testing.T) {
		s := newSim()
		s.Devices[0].Capacity = 3 * api.GiB / 2 // one of them fits
		for _, name := range []string{"a", "b"} {
			s.declare(spec(name, func(f *api.Function) { f.MaxScale = 1 }))
		}
		s.use("default/a", 2)
		count := alternate(s, 700*time.Millisecond, 10*time.Minute, func(round int) { s.use("default/b", round%2) })
		// A turn is no shorter than the wait for it, 5 s.
		if most := int(10 * time.Minute / (5 * time.Second)); count[Sleep]+count[Stop] > most {
			t.Errorf("a is always busy, b every other 700 ms: want at most %d switches, have %v", most, count)
		}
	})
	t.Run("two functions in turn", func(t *testing.T) {
		s := newSim()
		s.Devices[0].Capacity = 3 * api.GiB / 2
		for _, name := range []string{"a", "b"} {
			s.declare(spec(name, func(f *api.Function) { f.MaxScale = 1 }))
		}
		count := alternate(s, 10*time.Second, 10*time.Minute, func(round int) {
			s.use("default/a", round%2)
			s.use("default/b", 1-round%2)
		})
		if rounds := 60; count[Sleep]+count[Stop] > rounds || count[Wake]+count[Start] > rounds+1 {
			t.Errorf("either is busy for 10 s: want one switch for each turn, have %v in %d turns", count, rounds)
		}
	})
}

// TestRevokedAndGivenBack has a demand that ends either of two sleepers, of which one still releases memory. Plans that follow one another at once
// neither revoke what they gave nor give what they revoked.
func TestRevokedAndGivenBack(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 5))
		amount := func(n int) api.Memory { return api.Memory{Host: api.Bytes(r.IntN(n)) * 64 * api.MiB} }
		s := newSim()
		s.Devices[0].Capacity = api.GiB + amount(12).Host
		for k, name := range []string{"gains", "settles", "granted"} {
			f := job(name, 0)
			f.Need = api.Memory{Host: api.GiB/2 + amount(8).Host}
			f.Spec.Memory, f.Spec.MaxScale, f.Spec.Priority = f.Need, 1, r.IntN(2)
			f.Past.Asleep = [4]api.Memory{{}, amount(5), amount(3)}
			f.LastRequest = s.now.Add(time.Duration(k-60) * time.Second)
			s.Functions = append(s.Functions, f)
			if name == "gains" {
				continue
			}
			i := one(&f, api.InstanceID(name), api.Asleep, s.now)
			i.Status.Devices, i.Status.Memory = nil, f.Need // neither has been measured since it fell asleep
			if name == "settles" {
				i.Settles = s.now.Add(200 * time.Millisecond)
			}
			s.Instances = append(s.Instances, i)
		}
		s.Sort()
		f := s.function("default/gains")
		f.Waiting, f.WaitingSince, f.LastRequest = 1, s.now, s.now
		count := map[Kind]int{}
		var told []string
		for range 6 {
			actions, _ := s.records.plan(s.now)
			for _, a := range actions {
				switch count[a.Kind]++; a.Kind {
				case Grant:
					s.instance(a.Instance).Grant = api.Grant{Instance: a.Instance, Epoch: 1, Expires: a.Expires}
				case Revoke:
					s.instance(a.Instance).Grant = api.Grant{}
				}
			}
			told = append(told, fmt.Sprint(actions))
		}
		if count[Grant] > 1 || count[Revoke] > 1 {
			t.Fatalf("seed %d: %v; want each grant and revocation once:\n%s", seed, count, strings.Join(told, "\n"))
		}
	}
}
