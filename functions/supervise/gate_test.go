package supervise

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// A call on behalf of an admitted request gets through while the gate drains.
func TestInside(t *testing.T) {
	g := newGate(1)
	if _, refused := g.Inside(); refused == nil {
		t.Error("let in before there is a runtime")
	}
	g.open("http://127.0.0.1:1")
	if _, refused := g.Enter(); refused != nil {
		t.Fatal(refused)
	}
	g.shut(refusal(api.Draining, false), reopening{})
	if base, refused := g.Inside(); refused != nil || base != "http://127.0.0.1:1" {
		t.Errorf("a draining gate: %q, %v; want the runtime", base, refused)
	}
	g.Leave()
	if _, refused := g.Inside(); refused == nil || refused.Code != api.CodeDraining {
		t.Errorf("an empty shut gate: %v, want %s", refused, api.CodeDraining)
	}
}

// EnterBehind waits only while the gate is shut by a sleep or a start.
func TestEnterBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		began, waited := time.Now(), make(chan time.Duration)
		await := func(limit time.Duration) {
			go func() {
				if _, _, _, refused := g.EnterBehind(t.Context(), limit); refused == nil {
					g.Leave()
				}
				waited <- time.Since(began)
			}()
		}
		want := func(what string, d time.Duration) {
			t.Helper()
			if got := <-waited; got != d {
				t.Errorf("%s: it waited %s, want %s", what, got, d)
			}
			began = time.Now()
		}
		await(time.Second)
		want("the limit", time.Second)
		g.shut(refusal(api.Asleep, false), reopening{})
		await(time.Minute)
		time.Sleep(time.Second)
		g.shut(refusal(api.Starting, false), reopening{}) // it is woken
		time.Sleep(time.Second)
		g.open("http://127.0.0.1:1")
		want("a wake", 2*time.Second)
		await(time.Minute)
		want("an open gate", 0)
		g.shut(refusal(api.Asleep, false), reopening{})
		await(time.Minute)
		time.Sleep(time.Second)
		g.shut(refusal(api.Unhealthy, true), reopening{})
		want("a wake that failed", time.Second)
	})
}
