package inbound_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rouse-dev/rouse/internal/inbound"
)

// openAccount returns an account of n bytes that closes when it is asked to give way.
func openAccount(t *testing.T, b *inbound.Budget, client string, n int64) *inbound.Account {
	t.Helper()
	var a *inbound.Account
	var once sync.Once
	a = b.Open(client, func() { go once.Do(func() { a.Close() }) })
	if err := a.Take(t.Context(), n); err != nil {
		t.Fatalf("%s takes %d: %v", client, n, err)
	}
	return a
}

func TestWhoGivesWay(t *testing.T) {
	type holder struct {
		client  string
		n       int64
		settled bool
	}
	for name, tc := range map[string]struct {
		holders []holder
		client  string
		wants   int64
		loser   int // index in holders; -1: none
		err     error
	}{
		"there is room":                      {[]holder{{"a", 40, false}}, "b", 60, -1, nil},
		"the client that holds more":         {[]holder{{"a", 10, false}, {"b", 60, false}, {"c", 20, false}}, "d", 20, 1, nil},
		"its larger account":                 {[]holder{{"a", 10, false}, {"b", 20, false}, {"b", 40, false}, {"c", 25, false}}, "d", 20, 2, nil},
		"of equals the older":                {[]holder{{"a", 30, false}, {"b", 30, false}, {"c", 30, false}}, "d", 20, 0, nil},
		"of one client too":                  {[]holder{{"a", 30, false}, {"a", 30, false}, {"b", 35, true}}, "a", 20, 0, nil},
		"not who holds less":                 {[]holder{{"a", 10, false}, {"b", 10, false}, {"c", 10, true}, {"d", 60, true}}, "e", 40, -1, inbound.ErrFull},
		"not what is in use":                 {[]holder{{"a", 50, true}, {"b", 45, true}}, "c", 20, -1, inbound.ErrFull},
		"what is in use is not held against": {[]holder{{"a", 60, true}, {"b", 35, false}}, "a", 10, 1, nil},
		"no more than a share":               {[]holder{{"a", 60, true}}, "a", 30, -1, inbound.ErrShare},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := inbound.NewBudget(100, 80)
				lost := -1
				var accounts []*inbound.Account
				for i, h := range tc.holders {
					a := b.Open(h.client, func() { lost = i; go func() { accounts[i].Close() }() })
					accounts = append(accounts, a)
					if err := a.Take(t.Context(), h.n); err != nil {
						t.Fatal(err)
					}
					if h.settled {
						if err := a.Settle(); err != nil {
							t.Fatal(err)
						}
					}
				}
				before := b.Used()
				err := b.Open(tc.client, func() { t.Error("who asks is told to give way") }).Take(t.Context(), tc.wants)
				if !errors.Is(err, tc.err) || lost != tc.loser {
					t.Errorf("got %v and %d gave way, want %v and %d", err, lost, tc.err, tc.loser)
				}
				want := before
				if err == nil {
					want += tc.wants
				}
				if lost >= 0 {
					want -= tc.holders[lost].n
				}
				if b.Used() != want {
					t.Errorf("%d are used, want %d", b.Used(), want)
				}
			})
		})
	}
}

// TestWaiting checks that an account that waits for another may be asked to give way itself, or be cancelled.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inbound.NewBudget(100, 100)
		stubborn := b.Open("a", func() {}) // closes late
		if err := stubborn.Take(t.Context(), 90); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancelCause(t.Context())
		left := make(chan error)
		go func() { left <- b.Open("b", func() {}).Take(ctx, 20) }()
		synctest.Wait()
		gone := errors.New("gone")
		leave(gone)
		if err := <-left; !errors.Is(err, gone) {
			t.Errorf("got %v, want the cause", err)
		}
		if err := stubborn.Settle(); !errors.Is(err, inbound.ErrGaveWay) {
			t.Errorf("an account that was asked settles: %v", err)
		}
		if err := stubborn.Take(t.Context(), 1); !errors.Is(err, inbound.ErrGaveWay) {
			t.Errorf("an account that was asked takes more: %v", err)
		}
		stubborn.Close()
		if b.Used() != 0 {
			t.Errorf("%d are used, want 0", b.Used())
		}
	})
}

// TestManyClients checks that the budget holds for any behaviour of clients, and that a small request always
// succeeds.
func TestManyClients(t *testing.T) {
	b := inbound.NewBudget(1000, 500)
	var all sync.WaitGroup
	for c := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(c)))
			for range 500 {
				asked := make(chan struct{})
				a := b.Open(string(rune('a'+c)), func() { close(asked) })
				for range random.IntN(6) {
					if a.Take(t.Context(), 1+random.Int64N(100)) != nil {
						break
					}
				}
				if used := b.Used(); used > 1000 {
					t.Errorf("%d are used of 1000", used)
				}
				_ = a.Settle()
				a.Close()
			}
		})
	}
	all.Wait()
	if b.Used() != 0 {
		t.Errorf("%d are used at the end, want 0", b.Used())
	}
}

func TestALittleIsAlwaysThere(t *testing.T) {
	b := inbound.NewBudget(1000, 500)
	for range 100 {
		openAccount(t, b, "greedy", 50) // its own older accounts give way
	}
	for range 100 {
		openAccount(t, b, "another", 20)
	}
	honest := openAccount(t, b, "honest", 20)
	if err := honest.Settle(); err != nil {
		t.Error(err)
	}
}
