package activator

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// TestSpeculativeSend: the request that begins a wake goes to the instance right behind it, and once.
func TestSpeculativeSend(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	i.wakeTakes = 100 * time.Millisecond
	b.grant(i, 1)
	resp, got := b.post(chatPath, `{"model":"m"}`)
	if resp.StatusCode != http.StatusOK || !strings.Contains(got, `{\"model\":\"m\"}`) {
		t.Errorf("got %s %s", resp.Status, got)
	}
	if i.kept.Load() != 1 || i.wakes.Load() != 1 || i.served.Load() != 1 || i.refused.Load() != 0 {
		t.Errorf("%d sent speculatively, %d wakes, %d served, %d refused; want one of each and no refusal", i.kept.Load(), i.wakes.Load(), i.served.Load(), i.refused.Load())
	}
	if d := b.demands()[0]; d.Waiting != 1 || d.Running != 0 || d.Waking != "m-0001" {
		t.Errorf("the first demand is %+v: want it waiting, whatever was sent speculatively", d)
	}
	b.eventually("nothing waits or runs", func() bool { s, _ := b.a.Stats(name); return s.Waiting+s.Running == 0 })
	// While it is awake, nothing is sent speculatively, and clients can't have their requests held.
	i.set(api.Asleep)
	if resp, _ := b.post(chatPath, `{"model":"m"}`, control.HeaderWait, "true"); resp.StatusCode != http.StatusOK || i.refused.Load() == 0 {
		t.Errorf("got %s and %d refusals; want one of the instance that is thought awake", resp.Status, i.refused.Load())
	}
}

// TestContainersGetNothingAhead: a container may have done what came behind a wake when another instance gets it, too. So
// it comes when the instance is awake.
func TestContainersGetNothingAhead(t *testing.T) {
	var asked atomic.Int32
	i, door := plainBench(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, "done")
	})
	i.wakeTakes = 50 * time.Millisecond
	resp, err := http.Post("http://"+door+"/orders", "application/json", strings.NewReader(`{"count":1}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || i.wakes.Load() != 1 || i.kept.Load() != 0 || asked.Load() != 1 {
		t.Errorf("%s, %d wakes, %d sent behind them, done %d times; want 1, 0 and 1", resp.Status, i.wakes.Load(), i.kept.Load(), asked.Load())
	}
}

// TestSpeculativeSendIsRefused: a failed wake loses nothing, and a refused speculative request is sent again.
func TestSpeculativeSendIsRefused(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	i.wakeTakes = 50 * time.Millisecond
	i.wakeFails.Store(1)
	b.grant(i, 1)
	if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != http.StatusOK {
		t.Errorf("got %s %s", resp.Status, got)
	}
	if i.kept.Load() != 1 || i.refused.Load() != 1 || i.wakes.Load() != 2 || i.served.Load() != 1 {
		t.Errorf("%d sent speculatively, %d refused, %d wakes, %d served; want 1, 1, 2, 1", i.kept.Load(), i.refused.Load(), i.wakes.Load(), i.served.Load())
	}
}

// TestSpeculativeSendIsAnsweredWhileDraining: an instance that is told to sleep just as it wakes finishes the
// speculative request first, and the activator, which believes it asleep, gets the answer.
func TestSpeculativeSendIsAnsweredWhileDraining(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	i.wakeTakes = 20 * time.Millisecond
	drained := make(chan struct{})
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		b.a.ObserveInstance(i.set(api.Draining)) // before the activator has seen it awake
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"ok":true}`)
		close(drained)
	}
	b.grant(i, 1)
	if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != http.StatusOK || got != `{"ok":true}` {
		t.Errorf("got %s %s", resp.Status, got)
	}
	<-drained
	b.eventually("nothing waits or runs", func() bool { s, _ := b.a.Stats(name); return s.Waiting+s.Running == 0 })
}

// TestSpeculativeSendIsCutOff: another instance takes the request first, so the one that is still being woken never
// gets it.
func TestSpeculativeSendIsCutOff(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	slow, quick := b.instance(name, "m-0001", api.Asleep), b.instance(name, "m-0002", api.Starting)
	slow.wakeTakes = 300 * time.Millisecond
	b.grant(slow, 1)
	go func() {
		b.eventually("one was sent speculatively", func() bool { return slow.kept.Load() == 1 })
		b.a.ObserveInstance(quick.set(api.Awake))
	}()
	if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != http.StatusOK || quick.served.Load() != 1 {
		t.Errorf("got %s %s, %d served by the other one", resp.Status, got, quick.served.Load())
	}
	b.eventually("the wake ends", func() bool { return slow.state() == api.Awake })
	if n := slow.served.Load(); n != 0 {
		t.Errorf("the instance that was woken served %d too", n)
	}
}

// TestSpeculativeSendWhoseClientLeaves: nothing of it remains at the instance.
func TestSpeculativeSendWhoseClientLeaves(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	i.wakeTakes = 300 * time.Millisecond
	b.grant(i, 1)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		b.eventually("one was sent speculatively", func() bool { return i.kept.Load() == 1 })
		leave()
	}()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.ts.URL+chatPath, strings.NewReader(`{"model":"m"}`))
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("got %s, want to have left", resp.Status)
	}
	b.eventually("nothing waits or runs", func() bool { s, _ := b.a.Stats(name); return s.Waiting+s.Running == 0 })
	b.eventually("the wake ends", func() bool { return i.state() == api.Awake })
	if n := i.served.Load(); n != 0 {
		t.Errorf("%d served, and nobody asks", n)
	}
}

// TestRuntimeDiesOfSpeculativeSend: it counts like any attempt, so that a request does not kill all instances.
func TestRuntimeDiesOfSpeculativeSend(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	i.wakeTakes = 20 * time.Millisecond
	var tries atomic.Int32
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		tries.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		api.WriteError(w, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime failed before it answered"))
	}
	b.grant(i, 1)
	if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != http.StatusBadGateway || tries.Load() != maxGiven {
		t.Errorf("got %s %s after %d tries, want 502 after %d", resp.Status, got, tries.Load(), maxGiven)
	}
}
