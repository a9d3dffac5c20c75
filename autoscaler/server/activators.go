package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

const (
	callTimeout  = 5 * time.Second
	statsTimeout = 2 * time.Second
	// resendEvery bounds how long an activator may be wrong about an instance.
	resendEvery = time.Minute
	pauseFirst  = 20 * time.Millisecond
	pauseMost   = 2 * time.Second
)

// Activator is one activator's pod.
type Activator struct {
	// Key changes when the pod or its container is replaced and has lost its state.
	Key      string
	Name     string
	Endpoint api.Endpoint
	// Ready is Kubernetes' view.
	Ready bool
}

// Activators are the clients of all activators. Each has its own sender: a hanging one delays no other. It is safe for
// concurrent use. Calls before [Activators.Run] are queued.
type Activators struct {
	client *control.Client
	log    *slog.Logger

	mu      sync.Mutex // guards all below; never held during a call
	ctx     context.Context
	ended   bool
	senders sync.WaitGroup
	peers   map[string]*peer // by key
	reports map[api.InstanceID]control.InstanceReport
	grants  map[api.InstanceID]api.Grant
	gpus    map[api.InstanceID]float64
}

// NewTransport is for calls to activators, without TLS.
func NewTransport() http.RoundTripper { return localhttp.New(16, 30*time.Second) }

// NewActivators returns an empty set. token returns the cluster's token.
func NewActivators(transport http.RoundTripper, token func() string, log *slog.Logger) *Activators {
	return &Activators{
		client: control.New(transport, token), log: log, peers: map[string]*peer{},
		reports: map[api.InstanceID]control.InstanceReport{}, grants: map[api.InstanceID]api.Grant{}, gpus: map[api.InstanceID]float64{},
	}
}

// Run sends queued reports until ctx ends. It returns nil. Call it once.
func (a *Activators) Run(ctx context.Context) error {
	a.mu.Lock()
	a.ctx = ctx
	for _, p := range a.peers {
		a.start(p)
	}
	a.mu.Unlock()
	<-ctx.Done()
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.senders.Wait()
	return nil
}

// start runs p's sender, if Run is running. The caller holds a.mu.
func (a *Activators) start(p *peer) {
	if a.ctx == nil || a.ended {
		return
	}
	ctx := a.ctx
	a.senders.Go(func() { p.run(ctx) })
}

// Set replaces the activators: new ones get all reports and grants. It does not block.
func (a *Activators) Set(now []Activator) {
	a.mu.Lock()
	defer a.mu.Unlock()
	keep := map[string]bool{}
	for _, n := range now {
		keep[n.Key] = true
		if p := a.peers[n.Key]; p != nil {
			if !p.ready.Swap(n.Ready) && n.Ready {
				p.hurry.Ring()
			}
			continue
		}
		p := newPeer(a, n)
		a.peers[n.Key] = p
		a.fill(p)
		a.start(p)
		a.log.Info("an activator is there", "activator", n.Name, "endpoint", n.Endpoint, "ready", n.Ready)
	}
	for key, p := range a.peers {
		if !keep[key] {
			delete(a.peers, key)
			close(p.left)
			a.log.Info("an activator has left", "activator", p.Name)
		}
	}
}

// The caller holds a.mu.
func (a *Activators) fill(p *peer) {
	for _, id := range slices.Sorted(maps.Keys(a.reports)) {
		_, granted := a.grants[id]
		p.queue(a.reports[id], granted)
	}
}

// Known returns the activators, by name.
func (a *Activators) Known() []Activator {
	var known []Activator
	for _, p := range a.all() {
		n := p.Activator
		n.Ready = p.ready.Load()
		known = append(known, n)
	}
	slices.SortFunc(known, func(x, y Activator) int { return cmp.Compare(x.Name, y.Name) })
	return known
}

func (a *Activators) all() []*peer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.peers))
}

// Tell sends a status to all activators, including later ones. It never blocks. The reports of one instance arrive in
// order; of queued ones only the last is sent. [api.Gone] drops the instance.
func (a *Activators) Tell(r control.InstanceReport) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tell(r)
}

// The caller holds a.mu.
func (a *Activators) tell(r control.InstanceReport) {
	id := r.Status.Instance
	r.GPUs = a.gpus[id]
	a.reports[id] = r
	if r.Status.State == api.Gone {
		delete(a.reports, id)
		delete(a.grants, id)
		delete(a.gpus, id)
	}
	for _, p := range a.peers {
		p.queue(r, false)
	}
}

// Hold adds to an instance's reports the GPUs that it holds awake.
func (a *Activators) Hold(_ api.FunctionName, id api.InstanceID, gpus float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gpus[id] = gpus; gpus == 0 {
		delete(a.gpus, id)
	}
	if r, known := a.reports[id]; known {
		a.tell(r) // under the same lock: a later report must not be overtaken
	}
}

// Instances returns the last reports of a function, by instance.
func (a *Activators) Instances(f api.FunctionName) []control.InstanceReport {
	a.mu.Lock()
	defer a.mu.Unlock()
	var of []control.InstanceReport
	for _, r := range a.reports {
		if r.Status.Function == f {
			of = append(of, r)
		}
	}
	slices.SortFunc(of, func(x, y control.InstanceReport) int {
		return cmp.Compare(x.Status.Instance, y.Status.Instance)
	})
	return of
}

// Grant fails if a living activator may not have received g. Later ones get it, too.
func (a *Activators) Grant(ctx context.Context, g api.Grant) error {
	a.mu.Lock()
	a.grants[g.Instance] = g
	a.mu.Unlock()
	return a.post(ctx, control.PathGrants, g, "grant "+string(g.Instance))
}

func (a *Activators) post(ctx context.Context, path string, body any, what string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return a.each(func(p *peer) error {
		if err := p.post(ctx, path, body); err != nil && p.alive() {
			return fmt.Errorf("%s at %s: %w", what, p.Name, err)
		}
		return nil
	})
}

// Revoke withdraws a grant from all activators. nil: no wake under it is under way or can begin. It retries until ctx
// ends; an activator lives as long as Kubernetes reports it as ready.
func (a *Activators) Revoke(ctx context.Context, g api.Grant) error {
	a.mu.Lock()
	if a.grants[g.Instance].Epoch <= g.Epoch {
		delete(a.grants, g.Instance) // no activator gets it any more
	}
	a.mu.Unlock()
	return a.each(func(p *peer) error {
		err := p.insist(ctx, control.PathRevoke, g)
		if err != nil {
			return fmt.Errorf("revoke the grant of %s at %s: %w", g.Instance, p.Name, err)
		}
		return nil
	})
}

// Fail answers requests that wait for a function with err; nil undoes that.
func (a *Activators) Fail(ctx context.Context, f api.FunctionName, err *api.Error) error {
	r := control.FailRequest{Function: f}
	if err != nil {
		r.Status, r.Code, r.Message, r.RetryAfter = err.Status, err.Code, err.Message, err.RetryAfter
	}
	return a.post(ctx, control.PathFail, r, "refuse what waits for "+string(f))
}

// Report has all activators send their view of a function now, and waits a little.
func (a *Activators) Report(ctx context.Context, f api.FunctionName) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	_ = a.each(func(p *peer) error {
		if err := p.post(ctx, statsPath(f), nil); err != nil {
			a.log.Debug("an activator does not report", "activator", p.Name, "function", f, "error", err)
		}
		return nil
	}) // never fails
}

// Stats adds up the activators' views of a function.
func (a *Activators) Stats(ctx context.Context, f api.FunctionName) (sum api.Activity) {
	for _, one := range gather[api.Activity](ctx, a, statsPath(f)) {
		sum = add(sum, one)
	}
	return sum
}

// Picks returns the instances chosen for a request, in the order of time.
func (a *Activators) Picks(ctx context.Context, request string) []api.Pick {
	all := slices.Concat(gather[[]api.Pick](ctx, a, admin.PicksPath(request))...)
	slices.SortStableFunc(all, func(x, y api.Pick) int { return x.At.Compare(y.At) })
	return all
}

// Clusters returns the clusters that front doors declare.
func (a *Activators) Clusters(ctx context.Context) []admin.Cluster {
	return admin.MergeClusters(gather[[]admin.Cluster](ctx, a, admin.PathClusters)...)
}

// Far returns the functions of other clusters: a summary of all, or details of the named one.
func (a *Activators) Far(ctx context.Context, name api.FunctionName) []admin.Far {
	path := admin.PathFar
	if name != "" {
		path += "?function=" + url.QueryEscape(string(name))
	}
	return admin.MergeFar(gather[[]admin.Far](ctx, a, path)...)
}

// gather leaves out activators that don't answer.
func gather[T any](ctx context.Context, a *Activators, path string) (all []T) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	var mu sync.Mutex // guards all
	_ = a.each(func(p *peer) error {
		var one T
		if err := p.get(ctx, path, &one); err != nil {
			a.log.Debug("an activator's answer is missing", "activator", p.Name, "path", path, "error", err)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, one)
		return nil
	}) // never fails
	return all
}

func add(x, y api.Activity) api.Activity {
	x.Waiting += y.Waiting
	x.Running += y.Running
	x.HeldBytes += y.HeldBytes
	x.OldestAge = max(x.OldestAge, y.OldestAge)
	if y.LastRequest.After(x.LastRequest) {
		x.LastRequest = y.LastRequest
	}
	x.Waking, x.Failed = cmp.Or(x.Waking, y.Waking), cmp.Or(x.Failed, y.Failed)
	if x.LostNames == nil { // all activators decide the same
		x.LostNames, x.WrongFallbacks = y.LostNames, y.WrongFallbacks
	}
	for _, s := range y.Instances {
		k := slices.IndexFunc(x.Instances, func(o api.InstanceStatus) bool { return o.Instance == s.Instance })
		switch {
		case k < 0:
			x.Instances = append(x.Instances, s)
		case s.Supersedes(x.Instances[k]):
			x.Instances[k] = s
		}
	}
	return x
}

func (a *Activators) each(f func(*peer) error) error {
	peers := a.all()
	errs := make([]error, len(peers))
	var all sync.WaitGroup
	for k, p := range peers {
		all.Go(func() { errs[k] = f(p) })
	}
	all.Wait()
	return errors.Join(errs...)
}
