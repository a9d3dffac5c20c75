package knative

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// load sends requests one after the other from several clients until it is stopped.
type load struct {
	stop    context.CancelFunc
	clients sync.WaitGroup
	sent    atomic.Int64
	mu      sync.Mutex // guards failed
	failed  []string
}

// underLoad starts a load; ask fails where the answer is wrong.
func underLoad(t *testing.T, clients int, ask func(ctx context.Context, i int64) error) *load {
	ctx, stop := context.WithCancel(t.Context())
	l := &load{stop: stop}
	for range clients {
		l.clients.Go(func() {
			for ctx.Err() == nil {
				i := l.sent.Add(1)
				// What was sent is waited for: a request that the end of the load cuts is no failure of Rouse.
				if err := ask(t.Context(), i); err != nil {
					l.mu.Lock()
					l.failed = append(l.failed, fmt.Sprintf("%s request %d: %v", time.Now().Format("15:04:05.000"), i, err))
					l.mu.Unlock()
				}
				select { // a load that takes all of a small machine only makes the rest of the test slow
				case <-time.After(20 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	t.Cleanup(stop)
	return l
}

// goOn waits until so many more requests were sent.
func (l *load) goOn(t *testing.T, n int64) {
	t.Helper()
	until := l.sent.Load() + n
	eventually(t, "the load goes on", func() string {
		if got := l.sent.Load(); got < until {
			return fmt.Sprintf("%d requests sent, want %d", got, until)
		}
		return ""
	})
}

// end stops the load and returns what failed, of many the first ones and how many there were.
func (l *load) end() []string {
	l.stop()
	l.clients.Wait()
	if n := len(l.failed); n > 10 {
		return append(l.failed[:10:10], fmt.Sprintf("%d requests failed", n))
	}
	return l.failed
}

// asking asks a function for pairs of words, each its own.
func asking(f *function) func(context.Context, int64) error {
	return func(ctx context.Context, i int64) error {
		want := pair(int(i))
		a, err := call(ctx, f.c, f.host(), "/v1/chat/completions", chat(f.name, want))
		if err != nil {
			return err
		}
		if a.status != http.StatusOK || !strings.Contains(a.body, want) {
			return fmt.Errorf("status %d, want %q: %s", a.status, want, a.body)
		}
		return nil
	}
}

// rolledOut waits until a Deployment of the system is whole again.
func rolledOut(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	if out, err := c.Kubectl(t.Context(), "-n", "knative-serving", "rollout", "status", "deployment/"+name, "--timeout=180s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// anActivatorIsDrainedUnderLoad deletes one of two activators: nothing fails.
func anActivatorIsDrainedUnderLoad(t *testing.T) {
	f := create(t, "drained", functionImage, lasting)
	f.ask("red blue")
	l := underLoad(t, 8, asking(f))
	l.goOn(t, 100)
	victim := pods(t, f.c, "app=rouse-activator", "knative-serving")[0].Metadata.Name
	if _, err := f.c.Kubectl(t.Context(), "-n", "knative-serving", "delete", "pod", victim, "--timeout=3m"); err != nil { // it returns when the pod is gone
		t.Fatal(err)
	}
	rolledOut(t, f.c, "rouse-activator")
	l.goOn(t, 100)
	for _, failure := range l.end() {
		t.Error(failure)
	}
}

// TestAnActivatorIsKilledUnderLoad kills one of two activators without a word. What
// it had in hand is lost, as with any proxy; nothing else is.
func TestAnActivatorIsKilledUnderLoad(t *testing.T) {
	rouse(t)
	f := create(t, "killed", functionImage, lasting)
	f.ask("red blue")
	const clients = 8
	l := underLoad(t, clients, asking(f))
	l.goOn(t, 100)
	victim := pods(t, f.c, "app=rouse-activator", "knative-serving")[0].Metadata.Name
	kill(t, f.c, victim)
	l.goOn(t, 300)
	rolledOut(t, f.c, "rouse-activator")
	l.goOn(t, 100)
	failed := l.end()
	// One request per client may have been on its way through the victim, and the
	// ingress may have chosen it once more before it heard of the death.
	if len(failed) > 2*clients {
		t.Errorf("%d requests failed, want at most %d:\n%s", len(failed), 2*clients, strings.Join(failed, "\n"))
	}
}

// kill kills the process of a pod of the system, as a crash does.
func kill(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	id, err := c.Kubectl(t.Context(), "-n", "knative-serving", "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	if err != nil {
		t.Fatal(err)
	}
	cmd := c.Exec(t.Context(), "ctr", "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", strings.TrimPrefix(strings.TrimSpace(id), "containerd://"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kill %s: %v: %s", name, err, out)
	}
}

// TestTheAutoscalerIsKilledAndBack kills the autoscaler that decides. What is awake
// goes on; the other one takes over and wakes, sleeps and starts.
func TestTheAutoscalerIsKilledAndBack(t *testing.T) {
	awake := create(t, "goes-on", functionImage, lasting)
	awake.ask("red blue")
	cold := create(t, "comes-later", functionImage, napping)
	l := underLoad(t, 2, asking(awake))
	leader := pods(t, awake.c, "app=rouse-autoscaler,rouse.dev/leader=true", "knative-serving")
	if len(leader) != 1 {
		t.Fatalf("%d autoscalers lead, want 1", len(leader))
	}
	if _, err := awake.c.Kubectl(t.Context(), "-n", "knative-serving", "delete", "pod", leader[0].Metadata.Name, "--force", "--grace-period=0"); err != nil {
		t.Fatal(err)
	}
	cold.ask("apple pear") // held until somebody decides again
	awake.hasState("awake")
	cold.hasState("asleep")
	cold.ask("sun moon")
	for _, failure := range l.end() {
		t.Error(failure)
	}
	if now := pods(t, awake.c, "app=rouse-autoscaler,rouse.dev/leader=true", "knative-serving"); len(now) != 1 || now[0].Metadata.Name == leader[0].Metadata.Name {
		t.Errorf("%v lead, want another than %s", now, leader[0].Metadata.Name)
	}
}

// TestTheKubeletStops stops the node's kubelet: what is awake goes on, what sleeps
// is woken, for neither needs Kubernetes; what is gone waits until it is back.
func TestTheKubeletStops(t *testing.T) {
	c := rouse(t)
	awake := create(t, "kubelet-awake", functionImage, lasting)
	awake.ask("red blue")
	sleeper := create(t, "kubelet-asleep", functionImage, []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=2s", "rouse.dev/gone-after=0"})
	sleeper.ask("red blue")
	sleeper.hasState("asleep")
	gone := create(t, "kubelet-gone", functionImage, lasting)
	if err := c.StopKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	started := false
	start := func() {
		if !started {
			started = true
			if err := c.StartKubelet(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(start)
	awake.ask("apple pear")
	sleeper.ask("sun moon")
	answered := make(chan error, 1)
	go func() { answered <- asking(gone)(t.Context(), 1) }()
	select {
	case err := <-answered:
		t.Errorf("a function with no pod was answered without a kubelet: %v", err)
	case <-time.After(3 * time.Second):
	}
	start()
	if err := <-answered; err != nil {
		t.Errorf("the request that waited for the kubelet: %v", err)
	}
}
