package route

import (
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// sleeps makes instance k of a fleet report a sleep in which it has kept so many tokens.
func sleeps(t *testing.T, s *Set, k int, level api.Level, kept api.Tokens) {
	t.Helper()
	st := report(k, api.Asleep, 9, 4)
	st.Level = level
	if kept > 0 {
		st.Load = &api.Load{Cached: kept, CacheKnown: true}
	}
	if !s.Observe(st, epoch) {
		t.Fatalf("a report of %s is not taken in", st.Instance)
	}
}

// order returns the sleepers in the order in which they would be woken for a request.
func order(s *Set, w Want) (ids []api.InstanceID) {
	sleepers, _ := s.Asleep(epoch, w)
	for _, i := range sleepers {
		ids = append(ids, i.ID)
	}
	return ids
}

// TestAsleep: among sleepers whose wakes take equally long, the one that has kept the beginning of the request comes
// first, then the one that its session prefers; a lighter sleep goes before both.
func TestAsleep(t *testing.T) {
	s := fleet(3, 1)
	at := map[string]api.InstanceID{} // the instance of each conversation
	for _, name := range []string{"x", "y", "z"} {
		i, _ := pick(t, s, prompt("a", name, 20)) // none is given back, so that each goes to another
		at[name] = i.ID
	}
	place := func(name string) int {
		return slices.IndexFunc(s.All(), func(i *Instance) bool { return i.ID == at[name] })
	}
	if place("x") == place("y") || place("y") == place("z") || place("x") == place("z") {
		t.Fatalf("the conversations are at %v, want three instances", at)
	}
	usual := []api.InstanceID{s.All()[0].ID, s.All()[1].ID, s.All()[2].ID}
	for k := range 3 {
		sleeps(t, s, k, api.Level1, 1<<20)
	}
	for name, id := range at {
		if got := order(s, prompt("a", name, 24)); got[0] != id || len(got) != 3 {
			t.Errorf("for %s they are woken in the order %v, want %s first", name, got, id)
		}
		if got := order(s, prompt("b", name, 24)); !slices.Equal(got, usual) {
			t.Errorf("for another tenant's %s they are woken in the order %v, want %v", name, got, usual)
		}
	}
	if got := order(s, prompt("a", "x", 100)); !slices.Equal(got, usual) {
		t.Errorf("for a prompt of which a fifth is known they are woken in the order %v, want %v", got, usual)
	}
	first := map[api.InstanceID]bool{}
	for session := range uint64(50) {
		want := Want{Session: session*0x9e3779b97f4a7c15 + 1}
		got := order(s, want)
		if again := order(s, want); !slices.Equal(got, again) {
			t.Errorf("a session has the order %v, and then %v", got, again)
		}
		first[got[0]] = true
		want.Prefix = prompt("a", "y", 24).Prefix
		if got := order(s, want); got[0] != at["y"] {
			t.Errorf("a session with a prompt that is known has the order %v, want %s first", got, at["y"])
		}
	}
	if len(first) != 3 {
		t.Errorf("50 sessions prefer %v, want all three", first)
	}
	deeper := report(place("x"), api.Asleep, 10, 4)
	deeper.Level = api.Level2
	s.Observe(deeper, epoch)
	if got := order(s, prompt("a", "x", 24)); got[2] != at["x"] {
		t.Errorf("one whose wake takes longer is woken in the order %v, want %s last", got, at["x"])
	}
}
