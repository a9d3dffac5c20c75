package e2e

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// two are functions of which one fits into the memory at a time.
const two = `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: one}
spec: {template: {metadata: {annotations: {rouse.dev/model: pico, rouse.dev/memory: 64Mi}}, spec: {containers: [{image: a}]}}}
---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: two}
spec: {template: {metadata: {annotations: {rouse.dev/model: pico, rouse.dev/memory: 64Mi}}, spec: {containers: [{image: a}]}}}
`

// TestOrdersLoseNothing gives orders at random while requests come for two
// functions that must take turns: not one request may fail.
func TestOrdersLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	p := newServer(t, "-f", twoFunctions(t), "--memory", "100Mi")
	stormed(t, p, func(r *rand.Rand, name string) {
		orders := [][]string{{"sleep", name}, {"sleep", "--unload", name}, {"sleep", "--level", "2", name}, {"wake", name}, {"ls"}, {"describe", name}}
		// An order may be refused: requests wait, or the other function has the memory.
		_, _ = p.rouse(orders[r.IntN(len(orders))]...)
	}, false)
}

// TestKillsCutHonestly kills at random: a request may fail, but none may look
// answered with anything but its answer, and afterwards all is well.
func TestKillsCutHonestly(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	p := newServer(t, "-f", twoFunctions(t), "--memory", "100Mi")
	stormed(t, p, func(r *rand.Rand, name string) {
		i, err := p.instanceNow(name)
		if err != nil {
			return // it sleeps without a process, or is gone
		}
		victim := i.PID
		if r.IntN(2) == 0 {
			if parent, err := parentOf(victim); err == nil && parent != p.server.cmd.Process.Pid && parent > 1 {
				victim = parent
			}
		}
		_ = syscall.Kill(victim, syscall.SIGKILL) // it may have ended by itself
	}, true)
}

// stormed sends bursts to both functions and disturbs them meanwhile.
func stormed(t *testing.T, p *place, disturb func(*rand.Rand, string), mayFail bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	answered, failed := 0, 0
	for round := range 8 {
		b := &burst{url: p.server.url, models: []string{"one", "two"}, n: 24, stream: round%2 == 0}
		b.begin()
		for range 3 {
			disturb(r, []string{"one", "two"}[r.IntN(2)])
		}
		b.answered.Wait()
		for _, err := range b.errs {
			switch {
			case err == nil:
				answered++
			case errors.Is(err, errWrong) || !mayFail:
				t.Errorf("round %d: %v", round, err)
			default:
				failed++
				t.Logf("round %d: %v", round, err)
			}
		}
	}
	t.Logf("%d answered, %d refused or cut", answered, failed)
	for _, name := range []string{"one", "two"} {
		if got, err := p.rouse("run", "-q", name, "echo red blue"); err != nil || got != "red blue\n" {
			t.Errorf("afterwards %s answers %q, %v", name, got, err)
		}
	}
}

func twoFunctions(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(path, []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
