package door_test

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// machine is a front door with its own instance of chat, which wakes on demand.
type machine struct {
	*front
	pool *x509.CertPool // of its certificate

	mu      sync.Mutex // guards the fields below
	status  api.InstanceStatus
	wakes   int
	running int // as last told to its autoscaler
}

// newMachine returns a machine whose instance has a state and a wake time.
func newMachine(t *testing.T, state api.State, wake time.Duration, declared ...door.Declaration) (*machine, func(name, token string, spec api.Function) *cluster) {
	t.Helper()
	server, pool := authority(t)
	instance := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, `{"from":"here"}`)
	}))
	t.Cleanup(instance.Close)
	m := &machine{pool: pool, status: api.InstanceStatus{Instance: "own-1", Function: chat.Name, State: state, Endpoint: api.Endpoint(instance.URL), Concurrency: 2, WakeTime: wake, LoadTime: wake}}
	m.front = newFrontWith(t, "front", api.EmitterFunc(m.brain), server, declared...)
	m.activator.PutFunction(chat)
	m.Near(chat, chat.Name)
	m.set(state)
	return m, func(name, token string, spec api.Function) *cluster {
		return newCluster(t, name, token, pool, spec, m.at)
	}
}

// brain is the machine's autoscaler.
func (m *machine) brain(e api.Event) {
	var d api.Demand
	if e.Type != api.EventDemand || json.Unmarshal(e.Data, &d) != nil {
		return
	}
	m.mu.Lock()
	m.running = d.Running
	m.mu.Unlock()
	if d.Waiting > 0 {
		go m.set(api.Awake)
	}
}

// set changes the state of its instance.
func (m *machine) set(state api.State) {
	m.mu.Lock()
	if state == api.Awake && m.status.State != api.Awake {
		m.wakes++
	}
	m.status.State = state
	m.status.Seq++
	st := m.status
	m.mu.Unlock()
	m.activator.ObserveInstance(st)
	m.ObserveNear(st)
}

func (m *machine) woken() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wakes
}

// has waits until the front door has an agent's function in a state.
func (m *machine) has(t *testing.T, cluster string, state api.State) {
	t.Helper()
	m.until(t, chat.Name, cluster+" is "+string(state), func(far admin.Far, _ string) bool {
		for _, i := range far.Function.Instances {
			if strings.HasPrefix(string(i.Instance), cluster+"/") {
				return i.State == state
			}
		}
		return state == api.Gone && len(far.Clusters) > 0
	})
}

// answers waits until a chat gets that answer: the activator is told a moment after the front door knows.
func (m *machine) answers(t *testing.T, status int, text string) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		got, body := m.ask(t, "chat")
		if got == status && strings.Contains(body, text) {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatalf("%d %s, want %d and %q", got, body, status, text)
		}
	}
}

// TestNearAndFar has a function both on the front door's machine and in a cluster. The instance that is awake, or that
// is expected to be awake sooner, serves it. The other one is not woken.
func TestNearAndFar(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		near, far         api.State
		nearTime, farTime time.Duration
		want              string
	}{
		"awake there":            {api.Asleep, api.Awake, time.Millisecond, time.Minute, "west"},
		"awake here":             {api.Awake, api.Asleep, time.Minute, time.Millisecond, "here"},
		"both asleep, it sooner": {api.Asleep, api.Asleep, 5 * time.Second, 300 * time.Millisecond, "west"},
		"both asleep, we sooner": {api.Asleep, api.Asleep, 300 * time.Millisecond, 5 * time.Second, "here"},
		"both as good":           {api.Asleep, api.Asleep, time.Second, time.Second, "here"},
		"loaded there":           {api.Gone, api.Asleep, 0, time.Second, "west"},
		"loaded here":            {api.Asleep, api.Gone, time.Second, 0, "here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, join := newMachine(t, c.near, c.nearTime, declared("west", "w", "default/*"))
			west := join("west", "w", chat)
			west.mu.Lock()
			west.status.WakeTime = c.farTime
			west.mu.Unlock()
			west.set(c.far)
			m.has(t, "west", c.far)
			before := west.wakes
			for range 5 {
				if status, body := m.ask(t, "chat"); status != 200 || body != fmt.Sprintf(`{"from":%q}`, c.want) {
					t.Errorf("%d %s, want it from %s", status, body, c.want)
				}
			}
			west.mu.Lock()
			wakes := west.wakes - before
			west.mu.Unlock()
			if own := m.woken(); c.want == "west" && own > 0 || c.want == "here" && wakes > 0 {
				t.Errorf("woken here %d times, there %d times", own, wakes)
			}
		})
	}
}

// TestNearFails: a function that can't start on the front door's machine is served by a cluster, and refused only if
// that can't start it either.
func TestNearFails(t *testing.T) {
	t.Parallel()
	m, join := newMachine(t, api.Gone, time.Millisecond, declared("west", "w", "default/*"))
	m.FailNear(chat.Name, api.Errorf(http.StatusServiceUnavailable, api.CodeStartFailed, "no memory here"))
	if status, body := m.ask(t, "chat"); status != 503 || !strings.Contains(body, "no memory here") {
		t.Errorf("alone: %d %s, want its own reason", status, body)
	}
	west := join("west", "w", chat)
	m.answers(t, 200, `{"from":"west"}`)
	m.until(t, chat.Name, "why", func(_ admin.Far, why string) bool {
		return strings.Contains(why, "passed here: it can't start here: no memory here")
	})
	west.stop()
	m.answers(t, 503, "no memory here")
	m.FailNear(chat.Name, nil)
	if status, body := m.ask(t, "chat"); status != 200 || body != `{"from":"here"}` {
		t.Errorf("when it can start: %d %s", status, body)
	}
}

// TestRunningElsewhere: the machine's autoscaler does not count requests in clusters.
func TestRunningElsewhere(t *testing.T) {
	t.Parallel()
	m, join := newMachine(t, api.Asleep, time.Minute, declared("west", "w", "default/*"))
	west := join("west", "w", chat)
	begun, finish := make(chan struct{}), make(chan struct{})
	west.answer = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-finish
		fmt.Fprint(w, "{}")
	}
	west.set(api.Awake)
	m.has(t, "west", api.Awake)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { m.ask(t, "chat") })
		<-begun
	}
	m.activator.Report(chat.Name)
	m.mu.Lock()
	running := m.running
	m.mu.Unlock()
	if s, _ := m.activator.Stats(chat.Name); s.Running != 2 || running != 0 {
		t.Errorf("%d run, and the autoscaler was told of %d: want 2 and none", s.Running, running)
	}
	close(finish)
	both.Wait()
	if m.woken() != 0 {
		t.Error("it was woken")
	}
}
