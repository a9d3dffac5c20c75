package knative

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
)

// theWake is the trace of the calls of tests.
var theWake = api.Trace{ID: "4bf92f3577b34da6a3ce929d0e0e4736", Span: "00f067aa0ba902b7"}

// worked compares what the core was told of wakes with what is wanted, the name of pods that have one of their own cut off.
func (c *cluster) worked(want ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var got []string
	for _, line := range c.work {
		if at := strings.Index(line, "-provider-"); at >= 0 {
			line = line[:at+len("-provider")]
		}
		got = append(got, line)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.t.Errorf("the core was told of the work\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	c.work = nil
}

// TestWorkOfAStartAndAStop: each write to the API server, the making of the pod, and the victim's end.
func TestWorkOfAStartAndAStop(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		time.Sleep(lately)
		if id, err := c.begin("tiny-00001-0001", api.Grant{Epoch: 7, Trace: theWake.String()})(); id != "pod-2" || err != nil {
			t.Fatalf("got %s, %v", id, err)
		}
		c.worked("API write: scale of tiny-00001-deployment to 2")
		c.two()
		if want := []string{autoscaler.SpanCreated, autoscaler.SpanScheduled, autoscaler.SpanStarted}; !contains(c.steps, want) {
			t.Errorf("of the pod that was made the core was told %v, want %v", c.steps, want)
		}
		c.work = nil
		if err := c.fleet.Stop(c.traced(t.Context()), c.last("pod-2"), api.Drain{Limit: time.Second}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		const cost = "API write: deletion cost of pod-2"
		if !slices.Contains(c.work, cost) && costOf(c.object("pod-2")) == costStopping {
			c.work = append(c.work, cost) // keepCosts came first, which works for no wake
		}
		c.worked(cost, "API write: scale of tiny-00001-deployment to 1", "victim's end: pod-2 begins")
		c.end("pod-2")
		c.worked("victim's end: pod-2")
		if err := c.fleet.Stop(t.Context(), c.last("pod-1"), api.Drain{Limit: time.Second}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.worked() // it made room for nobody
	})
}

// TestWorkOfAPair: the claim, the pod that runs the server, and what is written on both.
func TestWorkOfAPair(t *testing.T) {
	inPairs(t, func(t *testing.T, c *cluster) {
		id := c.up()
		c.worked("API write: scale of tiny-00001-deployment to 1", "API write: pair of pod-1", "API write: pod tiny-00001-provider")
		if want := []string{autoscaler.SpanCreated, autoscaler.SpanStarted, autoscaler.SpanBound, autoscaler.SpanMade, autoscaler.SpanServerUp, autoscaler.SpanReady}; !contains(c.steps, want) {
			t.Errorf("the core was told of the steps %v, want %v", c.steps, want)
		}
		c.sleepNow(id)
		c.end("pod-1")
		c.work, c.steps = nil, nil
		woken := make(chan error, 1)
		go func() {
			ctx := c.traced(context.Background())
			_, err := c.fleet.Wake(ctx, api.InstanceStatus{Instance: id, Function: tiny}, api.Grant{Instance: id, Epoch: 9, Devices: []api.DeviceID{gpuOne}})
			woken <- err
		}()
		synctest.Wait()
		c.requester("pod-2", "10.0.0.3", gpuOne)
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.worked("API write: pair of pod-2", "API write: pair of tiny-00001-provider", "API write: scale of tiny-00001-deployment to 1")
		if slices.Contains(c.steps, autoscaler.SpanMade) {
			t.Errorf("the steps of a wake have the making of a pod: %v", c.steps)
		}
	})
}

// TestTheFunctionOfAPairIsToldItsWake, so that the steps that it reports are of that.
func TestTheFunctionOfAPairIsToldItsWake(t *testing.T) {
	inPairs(t, func(t *testing.T, c *cluster) {
		wait := c.begin("made-up", api.Grant{Epoch: 7, Devices: []api.DeviceID{gpuOne}, Memory: api.Memory{Devices: 1, PerDevice: 600 * api.MiB}, Trace: theWake.String()})
		c.requester("pod-1", "10.0.0.1", gpuOne)
		id, err := wait()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.provider(id, "10.0.0.2").Trace; got != theWake.String() {
			t.Errorf("the provider is told the trace %q", got)
		}
	})
}

func contains(all, want []string) bool {
	for _, w := range want {
		if !slices.Contains(all, w) {
			return false
		}
	}
	return true
}
