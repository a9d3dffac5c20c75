package route

import (
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// placesOf returns a set of instances with states, by name, with four slots each.
func placesOf(states ...api.State) (s *Set, all []*Instance) {
	s = &Set{}
	for n, state := range states {
		id := string(rune('a' + n))
		s.Observe(api.InstanceStatus{Instance: api.InstanceID(id), State: state, Seq: 1, Concurrency: 4, Level: api.Level1, Endpoint: api.Endpoint("http://" + id + ":1")}, epoch)
	}
	return s, s.All()
}

// only allows instances by name.
func only(names string) Want {
	return Want{Only: func(host string) bool { return strings.Contains(names, strings.TrimSuffix(host, ":1")) }}
}

func names(all []*Instance) (s string) {
	for _, i := range all {
		s += string(i.ID)
	}
	return s
}

// TestOnly: instances that a request may not use are ignored.
func TestOnly(t *testing.T) {
	s, _ := placesOf(api.Awake, api.Awake, api.Asleep, api.Asleep)
	for _, tc := range []struct {
		of                     string
		free, awake, some, all bool
		asleep                 string
	}{
		{"abcd", true, true, true, true, "cd"},
		{"bd", true, true, true, false, "d"},
		{"c", false, false, true, false, "c"},
		{"x", false, false, false, false, ""},
	} {
		w := only(tc.of)
		some, all := s.May(w)
		sleepers, _ := s.Asleep(epoch, w)
		if got := s.FreeFor(epoch, w, nil); got != tc.free || s.AwakeFor(epoch, w) != tc.awake || some != tc.some || all != tc.all || names(sleepers) != tc.asleep {
			t.Errorf("of %s: free %t, awake %t, some %t, all %t, asleep %q; want %+v", tc.of, got, s.AwakeFor(epoch, w), some, all, names(sleepers), tc)
		}
	}
}

// TestNext: the alternatives are other instances with a free slot that the request may use, the least busy first.
func TestNext(t *testing.T) {
	s, all := placesOf(api.Awake, api.Awake, api.Awake, api.Awake, api.Asleep)
	a, b, c := all[0], all[1], all[2]
	for range 4 {
		s.Reserve(b, "")
	}
	s.Reserve(c, "")
	for _, tc := range []struct{ of, want string }{{"abcde", "dc"}, {"abc", "c"}, {"abe", ""}} {
		if got := names(s.Next(a, 2, epoch, only(tc.of), nil)); got != tc.want {
			t.Errorf("of %s: %q, want %q", tc.of, got, tc.want)
		}
	}
	if got := s.Next(a, 2, epoch, Want{}, func(i api.InstanceID) bool { return i == "c" }); names(got) != "c" {
		t.Errorf("of those that may see the client's requests: %q, want c", names(got))
	}
}

// TestMove: the slot and the conversation move to the instance that served the request.
func TestMove(t *testing.T) {
	s, _ := placesOf(api.Awake, api.Awake, api.Awake)
	w := Want{Adapter: "x", Prefix: ChainOf(SaltOf("t"), nil, nil, []byte(`[{"role":"user","content":"`+strings.Repeat("word ", 200)+`"}]`))}
	from, _ := s.PickFor(epoch, w, nil)
	if got := s.Move(from, "stranger:1", epoch, w); got != nil || from.running != 1 {
		t.Fatalf("moved to %v, which is not there; %d run", got, from.running)
	}
	to := s.All()[(slices.Index(s.All(), from)+1)%3]
	if got := s.Move(from, to.base.Host, epoch, w); got != to {
		t.Fatalf("moved to %v, want %v", got, to)
	}
	if from.running != 0 || to.running != 1 || to.using["x"] != 1 || from.using["x"] != 0 {
		t.Errorf("%d run at the first and %d at the second", from.running, to.running)
	}
	if !from.avoided(epoch) {
		t.Error("the first is not avoided, which could not be reached")
	}
	s.Served(from) // it is the least busy one now
	w.Adapter = ""
	if got, why := s.PickFor(epoch, w, nil); got != to || why.By != ByPrefix {
		t.Errorf("the next turn goes to %s by %s, want %s by its prompt", got.ID, why.By, to.ID)
	}
}
