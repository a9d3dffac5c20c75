package fair

import "testing"

func TestShares(t *testing.T) {
	var s Shares[string]
	check := func(what string, clients, share, slots int) {
		t.Helper()
		if s.Clients() != clients || s.Share(4) != share || s.Slots("a") != slots {
			t.Errorf("%s: %d clients, a share of %d, a has %d slots; want %d, %d, %d", what, s.Clients(), s.Share(4), s.Slots("a"), clients, share, slots)
		}
	}
	check("none", 0, 4, 0)
	s.Add("a", 0, 3)
	check("one", 1, 4, 3)
	s.Add("b", 1, 0)
	s.Add("c", 1, 0)
	check("two wait", 3, 2, 3)
	s.Add("b", -1, 1)
	check("one of them runs", 3, 2, 3)
	s.Add("b", 0, -1)
	s.Add("c", -1, 0)
	s.Add("a", 1, -3)
	check("all have left but one that waits again", 1, 4, 0)
	s.Add("a", -1, 0)
	check("all have left", 0, 4, 0)
}
