package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
)

// node is the network between the control plane and activators that note what they are told.
type network struct {
	t *testing.T

	mu   sync.Mutex // guards what follows
	down map[string]bool
	hang map[string]chan struct{} // by host: calls of PathRevoke wait for it
	told map[string][]string      // by host
	says map[string]api.Activity
	// picked is when each has chosen an instance.
	picked map[string]time.Time
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Hostname()
	n.mu.Lock()
	down, hang := n.down[host], n.hang[host]
	n.mu.Unlock()
	if down {
		return nil, errors.New("connection refused")
	}
	if r.URL.Path == control.PathRevoke && hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
	if got := r.Header.Get("Authorization"); got != "Bearer "+clusterToken {
		n.t.Errorf("%s got the credential %q", host, got)
	}
	w := httptest.NewRecorder()
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.Method == http.MethodGet {
		if r.URL.Path == admin.PathPicks {
			api.WriteJSON(w, 200, []api.Pick{{Request: r.FormValue("request"), Activator: host, At: n.picked[host]}})
			return w.Result(), nil
		}
		api.WriteJSON(w, 200, n.says[host])
		return w.Result(), nil
	}
	n.told[host] = append(n.told[host], word(n.t, r))
	w.WriteHeader(http.StatusNoContent)
	return w.Result(), nil
}

// word is a call in short.
func word(t *testing.T, r *http.Request) string {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	what := strings.TrimPrefix(r.URL.Path, "/rouse/v1/")
	switch r.URL.Path {
	case control.PathInstances:
		var i control.InstanceReport
		if err := json.Unmarshal(raw, &i); err != nil || i.Token == "" {
			t.Errorf("a report %s: %v, want one with a token", raw, err)
		}
		return fmt.Sprintf("%s %s %d", i.Status.Instance, i.Status.State, i.Status.Seq)
	case control.PathGrants, control.PathRevoke:
		var g api.Grant
		if err := json.Unmarshal(raw, &g); err != nil {
			t.Error(err)
		}
		return fmt.Sprintf("%s %s %d", what, g.Instance, g.Epoch)
	}
	return what + " " + r.URL.RawQuery + string(raw)
}

func (n *network) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// heard returns what an activator was told since the last call.
func (n *network) heard(host string) []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	told := n.told[host]
	delete(n.told, host)
	return told
}

// crowd is a set of activators on such a network, in a bubble.
func crowd(t *testing.T, test func(t *testing.T, n *network, a *Activators)) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{t: t, down: map[string]bool{}, hang: map[string]chan struct{}{}, told: map[string][]string{}, says: map[string]api.Activity{}}
		a := NewActivators(n, func() string { return clusterToken }, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		test(t, n, a)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func pod(name string, ready bool) Activator {
	return Activator{Key: name + "/0", Name: name, Endpoint: api.Endpoint("http://" + name + ":8014"), Ready: ready}
}

func status(id api.InstanceID, state api.State, seq uint64) control.InstanceReport {
	return control.InstanceReport{Token: "t", Status: api.InstanceStatus{Instance: id, Function: "default/f", State: state, Seq: seq}}
}

func grant(id api.InstanceID, epoch uint64) api.Grant {
	return api.Grant{Instance: id, Function: "default/f", Epoch: epoch, Expires: time.Now().Add(10 * time.Minute)}
}

func (n *network) want(host string, want ...string) {
	n.t.Helper()
	if got := n.heard(host); !cmp.Equal(got, want) {
		n.t.Errorf("%s heard %q, want %q", host, got, want)
	}
}

func TestActivatorsAreTold(t *testing.T) {
	crowd(t, func(t *testing.T, n *network, a *Activators) {
		a.Set([]Activator{pod("a", true), pod("b", false)})
		a.Tell(status("i", api.Starting, 1))
		synctest.Wait()
		a.Tell(status("i", api.Awake, 2))
		a.Tell(status("j", api.Awake, 1))
		n.want("a", "i starting 1", "i awake 2", "j awake 1")
		n.want("b", "i starting 1", "i awake 2", "j awake 1")
		if err := a.Grant(t.Context(), grant("i", 5)); err != nil {
			t.Error(err)
		}
		a.Tell(status("j", api.Gone, 2))
		n.want("a", "grants i 5", "j gone 2")
		n.heard("b")
		a.Set([]Activator{pod("a", true), pod("c", true)}) // b has left, c is new
		n.want("c", "i awake 2", "grants i 5")
		a.Tell(status("i", api.Asleep, 3))
		n.want("a", "i asleep 3")
		n.want("b")
		n.want("c", "i asleep 3")
		restarted := pod("a", true)
		restarted.Key = "a/1"
		a.Set([]Activator{restarted})
		n.want("a", "i asleep 3", "grants i 5")
		if got := a.Instances("default/f"); len(got) != 1 || got[0].Status.Seq != 3 {
			t.Errorf("remembered: %+v, want i alone", got)
		}
	})
}

// What an instance holds is part of its reports, and forgotten with it in either order.
func TestHold(t *testing.T) {
	a := NewActivators(nil, nil, slog.New(slog.DiscardHandler))
	a.Hold("default/f", "made-up", 2)
	a.Hold("default/f", "made-up", 0) // it was renamed
	a.Tell(status("i", api.Awake, 1))
	a.Hold("default/f", "i", 0.5)
	if got := a.Instances("default/f"); len(got) != 1 || got[0].GPUs != 0.5 {
		t.Errorf("got %+v, want i with half a GPU", got)
	}
	a.Tell(status("i", api.Gone, 2))
	a.Hold("default/f", "i", 0)
	if got := a.Instances("default/f"); len(got)+len(a.gpus) != 0 {
		t.Errorf("kept of instances that are gone: %+v, %v", got, a.gpus)
	}
}

// One that does not answer holds up nobody, and is told the last of each instance when it is back.
func TestAnActivatorIsAway(t *testing.T) {
	crowd(t, func(t *testing.T, n *network, a *Activators) {
		n.set(func() { n.down["b"] = true })
		a.Set([]Activator{pod("a", true), pod("b", true)})
		for seq := range uint64(50) {
			a.Tell(status("i", api.Awake, seq))
			a.Tell(status("j", api.Awake, seq))
			synctest.Wait()
		}
		if got := n.heard("a"); len(got) != 100 || got[98] != "i awake 49" {
			t.Errorf("a heard %d reports, want all 100 in order: %q", len(got), got)
		}
		time.Sleep(5 * time.Second)
		n.set(func() { n.down["b"] = false })
		time.Sleep(5 * time.Second)
		if got := n.heard("b"); len(got) < 2 || got[0] != "i awake 49" || got[1] != "j awake 49" {
			t.Errorf("b heard %q, want the last of each", got)
		}
		time.Sleep(2 * resendEvery)
		if got := n.heard("b"); len(got) < 2 {
			t.Errorf("b heard %q in a long time, want all again", got)
		}
	})
}

// A revocation holds at all that are alive; one that can't be reached counts as
// alive for as long as its pod is said to be ready.
func TestRevoke(t *testing.T) {
	crowd(t, func(t *testing.T, n *network, a *Activators) {
		n.set(func() { n.down["dead"], n.down["gone"] = true, true })
		a.Set([]Activator{pod("a", true), pod("dead", false)})
		if err := a.Revoke(t.Context(), grant("i", 7)); err != nil {
			t.Errorf("one that is not ready and can't be reached: %v, want that it does not matter", err)
		}
		n.want("a", "revoke i 7")

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		a.Set([]Activator{pod("a", true), pod("gone", true)})
		if err := a.Revoke(ctx, grant("i", 8)); err == nil || !strings.Contains(err.Error(), "gone") {
			t.Errorf("one that is ready and can't be reached: %v, want an error that names it", err)
		}

		begun := time.Now() // its pod is deleted while it is asked
		done := make(chan error, 1)
		go func() { done <- a.Revoke(t.Context(), grant("i", 9)) }()
		time.Sleep(time.Second)
		a.Set([]Activator{pod("a", true)})
		if err := <-done; err != nil || time.Since(begun) > 2*time.Second {
			t.Errorf("its pod was deleted: %v after %v, want success at once", err, time.Since(begun))
		}

		hang := make(chan struct{}) // a wake is under way
		n.set(func() { n.hang["a"] = hang })
		go func() { done <- a.Revoke(t.Context(), grant("i", 10)) }()
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Fatalf("a wake is under way and the revocation has ended: %v", err)
		default:
		}
		close(hang)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Later activators get no revoked or expired grants, and none of instances that are gone.
func TestGrantsThatEnd(t *testing.T) {
	crowd(t, func(t *testing.T, n *network, a *Activators) {
		if err := a.Grant(t.Context(), grant("i", 1)); err != nil {
			t.Errorf("without activators: %v, want nothing", err)
		}
		for _, id := range []api.InstanceID{"i", "j", "k"} {
			a.Tell(status(id, api.Asleep, 1))
		}
		for _, g := range []api.Grant{grant("j", 1), {Instance: "k", Epoch: 1, Expires: time.Now()}, grant("l", 4)} {
			if err := a.Grant(t.Context(), g); err != nil {
				t.Error(err)
			}
		}
		if err := a.Revoke(t.Context(), grant("i", 1)); err != nil {
			t.Error(err)
		}
		if err := a.Revoke(t.Context(), grant("j", 0)); err != nil { // an older one
			t.Error(err)
		}
		a.Set([]Activator{pod("a", true)})
		n.want("a", "i asleep 1", "j asleep 1", "grants j 1", "k asleep 1")
	})
}

func TestFailAndReport(t *testing.T) {
	crowd(t, func(t *testing.T, n *network, a *Activators) {
		a.Set([]Activator{pod("a", true)})
		if err := a.Fail(t.Context(), "default/f", api.Errorf(503, api.CodeNoCapacity, "no room").WithRetryAfter(time.Second)); err != nil {
			t.Error(err)
		}
		a.Report(t.Context(), "default/f")
		n.want("a", `fail {"function":"default/f","status":503,"code":"no_capacity","message":"no room","retryAfter":1000000000}`, "stats function=default%2Ff")
		if err := a.Fail(t.Context(), "default/f", nil); err != nil {
			t.Error(err)
		}
		n.want("a", `fail {"function":"default/f","status":0}`)
		n.set(func() { n.down["a"] = true })
		if err := a.Fail(t.Context(), "default/f", nil); err == nil {
			t.Error("one that is ready and can't be reached: no error")
		}
	})
}

// What activators have chosen for a request is told in the order of time, without those that don't answer.
func TestPicksOfAll(t *testing.T) {
	crowd(t, func(t *testing.T, n *network, a *Activators) {
		n.set(func() {
			n.down["c"] = true
			n.picked = map[string]time.Time{"a": time.Unix(2, 0), "b": time.Unix(1, 0)}
		})
		a.Set([]Activator{pod("a", true), pod("b", true), pod("c", true)})
		var got []string
		for _, p := range a.Picks(t.Context(), "req a&b") {
			got = append(got, p.Activator+" "+p.Request)
		}
		if want := []string{"b req a&b", "a req a&b"}; !cmp.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestStatsAreAddedUp(t *testing.T) {
	crowd(t, func(t *testing.T, n *network, a *Activators) {
		now := time.Now()
		n.set(func() {
			n.down["c"] = true
			n.says["a"] = api.Activity{Waiting: 1, Running: 2, HeldBytes: 10, OldestAge: 2, LastRequest: now, Waking: "i",
				Instances: []api.InstanceStatus{{Instance: "i", Seq: 1}, {Instance: "j", Seq: 5}}}
			n.says["b"] = api.Activity{Waiting: 3, Running: 4, HeldBytes: 20, OldestAge: 3, LastRequest: now.Add(-time.Hour), Failed: "no room",
				Instances: []api.InstanceStatus{{Instance: "i", Seq: 2}}}
		})
		a.Set([]Activator{pod("a", true), pod("b", true), pod("c", true)})
		got := a.Stats(t.Context(), "default/f")
		if got.Waiting != 4 || got.Running != 6 || got.HeldBytes != 30 || got.OldestAge != 3 || !got.LastRequest.Equal(now) || got.Waking != "i" || got.Failed != "no room" {
			t.Errorf("the sum is %+v", got)
		}
		seqs := map[api.InstanceID]uint64{}
		for _, i := range got.Instances {
			seqs[i.Instance] = i.Seq
		}
		if want := map[api.InstanceID]uint64{"i": 2, "j": 5}; !cmp.Equal(seqs, want) {
			t.Errorf("instances %v, want %v: the newest report of each", seqs, want)
		}
	})
}
