package knative

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// toldFar records the calls to a front door of clusters about Services.
type toldFar []string

func (f *toldFar) Own(service api.Function, revision api.FunctionName) {
	*f = append(*f, fmt.Sprint("own ", service.Name, " ", revision, " ", service.Model))
}
func (f *toldFar) Place(service api.Function) {
	*f = append(*f, fmt.Sprint("place ", service.Name, " ", service.Clusters))
}
func (f *toldFar) Disown(service api.FunctionName) { *f = append(*f, fmt.Sprint("disown ", service)) }

// TestServices: a Service is described by the revision with most of its traffic, or without any by the newest.
func TestServices(t *testing.T) {
	g := newRig(t, host)
	var far toldFar
	g.watch.services = newServices(&far, slog.New(slog.DiscardHandler))
	told := func(want ...string) {
		t.Helper()
		if got := strings.Join(far, "; "); got != strings.Join(want, "; ") {
			t.Errorf("told %s, want %s", got, strings.Join(want, "; "))
		}
		far = nil
	}
	one := revision("tiny-00001", config.Class)
	g.watch.revision(one)
	told("own default/tiny default/tiny-00001 tiny")
	two := revision("tiny-00002", config.Class, config.AnnotationModel, "pico", config.AnnotationClusters, "gpu")
	g.watch.revision(two)
	told("disown default/tiny", "place default/tiny gpu")
	if g.core.Declared("default/tiny-00002") || g.watch.services.elsewhere("default/tiny-00002") != "default/tiny" || g.watch.services.elsewhere("default/tiny-00001") != "default/tiny-00001" {
		t.Error("the revision that is elsewhere is a function here")
	}
	g.watch.route(route(map[string]int64{"tiny-00001": 90, "tiny-00002": 10}))
	told("disown default/tiny", "own default/tiny default/tiny-00001 tiny")
	g.watch.route(route(map[string]int64{"tiny-00001": 10, "tiny-00002": 90}))
	told("disown default/tiny", "place default/tiny gpu")
	three := revision("tiny-00003", config.Class, config.AnnotationModel, "pico", config.AnnotationClusters, "gpu=h100")
	g.watch.revision(three)
	told()
	g.watch.route(route(map[string]int64{"tiny-00003": 100}))
	told("place default/tiny gpu=h100")
	g.watch.noRevision(three)
	told("place default/tiny gpu") // until the route changes
	g.watch.noRevision(two)
	told("disown default/tiny", "own default/tiny default/tiny-00001 tiny")
	g.watch.noRevision(one)
	told("disown default/tiny")
}

// TestForNobody: a Service for other clusters is refused, with the reason, if the activators are no front door, or
// other clusters could not have it. An agent offers none of the Services that its own cluster has elsewhere.
func TestForNobody(t *testing.T) {
	g := newRig(t, host)
	g.watch.revision(revision("tiny-00001", config.Class, config.AnnotationModel, "pico", config.AnnotationClusters, "gpu"))
	if status, got := g.ask("tiny"); status != 503 || !strings.Contains(got, "manifests/components/front") {
		t.Errorf("no front door: %d %s", status, got)
	}
	g = newRig(t, host)
	var far toldFar
	g.watch.services = newServices(&far, slog.New(slog.DiscardHandler))
	g.watch.revision(revision("tiny-00001", config.Class, config.AnnotationRuntime, "vllm", config.AnnotationClusters, "gpu"))
	if status, got := g.ask("tiny"); status != 503 || !strings.Contains(got, "can't be sent to other clusters") || strings.Contains(strings.Join(far, ";"), "place") {
		t.Errorf("without a model: %d %s; %v", status, got, far)
	}
	g = newRig(t, host)
	g.watch.offers = newOffers(g.core, api.EmitterFunc(func(api.Event) {}), "pod")
	g.watch.offers.changed = func(api.FunctionName) {}
	g.watch.revision(revision("tiny-00001", config.Class, config.AnnotationModel, "pico", config.AnnotationClusters, "gpu"))
	if list := g.watch.offers.functions(); len(list) > 0 || g.core.Declared("default/tiny-00001") {
		t.Errorf("an agent offers %v", list)
	}
}

// farRig is a rig that is a front door of clusters, with an agent that has one of its Services.
type farRig struct {
	*rig
	far *elsewhere

	mu    sync.Mutex // guards the fields below
	state api.State  // of the agent's instance
	told  []api.Demand
	said  []string // what other front doors are told of a Service: its function here, and the states of its instances at agents
}

func newFarRig(t *testing.T) *farRig {
	t.Helper()
	g := &farRig{state: api.Awake}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	e := &elsewhere{cfg: &door.File{Owner: "rack"}, log: log}
	var err error
	if e.Front, err = door.New(door.Config{Name: "pod", Owner: "rack", SharesNear: true},
		door.Deps{Activator: e, Near: api.EmitterFunc(g.hear), Transport: transportFunc(host), Changed: g.say, Logger: log}); err != nil {
		t.Fatal(err)
	}
	if err := e.Declare([]door.Declaration{{Name: "desk", TokenHashes: []string{door.HashToken("desk")}, Functions: []string{"*/*"}}}); err != nil {
		t.Fatal(err)
	}
	if e.core, err = activator.New(activator.Config{Name: "test", Domain: activator.NoDomain, PrivateMetrics: true}, activator.Deps{Emitter: e, Sight: e, Transport: e, Logger: log, Waker: noWaker{}}); err != nil {
		t.Fatal(err)
	}
	w := newWatch(e.core, newInstances(), log)
	w.services, w.seen = newServices(e, log), e.ObserveNear
	g.rig, g.far = &rig{core: e.core, watch: w}, e
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = e.core.Run(ctx)
	})
	return g
}

type noWaker struct{}

func (noWaker) Wake(context.Context, api.Endpoint, api.Grant) (api.InstanceStatus, error) {
	return api.InstanceStatus{}, fmt.Errorf("nothing is granted")
}

// hear acts as the cluster's own autoscaler.
func (g *farRig) hear(e api.Event) {
	var d api.Demand
	if e.Type == api.EventDemand && json.Unmarshal(e.Data, &d) == nil {
		g.mu.Lock()
		g.told = append(g.told, d)
		g.mu.Unlock()
	}
}

// waits reports whether the autoscaler was ever told of waiting requests for a function.
func (g *farRig) waits(name api.FunctionName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range g.told {
		if d.Function == name && d.Waiting > 0 {
			return true
		}
	}
	return false
}

// say is called with functions that changed for other front doors, and reads them as they do.
func (g *farRig) say(name api.FunctionName) {
	here := g.far.Local(name)
	stats, _ := g.core.Stats(here)
	said := string(here)
	for _, st := range g.far.Of(name, stats).Instances {
		said += " " + string(st.State)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.said = append(g.said, said)
}

// join makes an agent serve a Service until it is stopped.
func (g *farRig) join(t *testing.T, service api.FunctionName) (stop func()) {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	certified.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(certified.Certificate())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = g.far.Serve(ctx, l, door.TLS(&tls.Config{Certificates: certified.TLS.Certificates})) })
	spec := api.Function{Name: service, Model: api.ModelName(service.Name()), Concurrency: 2, MaxScale: 1}.WithDefaults()
	agent, err := agent.New(agent.Config{Fronts: []string{l.Addr().String()}, Cluster: "desk", Agent: "1", TLS: &tls.Config{RootCAs: trusted}, Token: func() (string, error) { return "desk", nil }},
		agent.Deps{Serve: func(w http.ResponseWriter, _ *http.Request, name api.FunctionName) { fmt.Fprint(w, "the desk's "+name) }, Emitter: api.EmitterFunc(func(api.Event) {}),
			Functions: func() []api.Function { return []api.Function{spec} },
			Stats: func(api.FunctionName) (api.Activity, bool) {
				g.mu.Lock()
				defer g.mu.Unlock()
				return api.Activity{Instances: []api.InstanceStatus{{Instance: "i", Function: service, State: g.state, Concurrency: 2}}}, true
			}})
	if err != nil {
		t.Fatal(err)
	}
	serving, leave := context.WithCancel(context.Background())
	left := make(chan struct{})
	go func() { defer close(left); _ = agent.Run(serving, time.Second) }()
	stop = sync.OnceFunc(func() { leave(); <-left })
	t.Cleanup(func() { stop(); cancel(); running.Wait() })
	return stop
}

// asked waits until a request for a model gets that answer.
func (g *farRig) asked(t *testing.T, model, want string) {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		status, got := g.ask(model)
		if status == 200 && got == want {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s: %d %s, want %s", model, status, got, want)
		}
	}
}

// TestOwnAndElsewhere: a Service of both the cluster and an agent is one model. An awake instance answers, even when
// the traffic moves to another revision. The cluster's own autoscaler gets no demand for what the agent serves, and
// gets it when the agent has left.
func TestOwnAndElsewhere(t *testing.T) {
	g := newFarRig(t)
	stop := g.join(t, "default/tiny")
	g.asked(t, "tiny", "the desk's default/tiny") // the cluster does not have it yet
	asleep := func(revision, id string) api.InstanceStatus {
		st := awake(revision, id, "10.0.0.1")
		st.State = api.Asleep
		return st
	}
	for k, name := range []string{"tiny-00001", "tiny-00002"} {
		g.watch.revision(revision(name, config.Class))
		g.watch.route(route(map[string]int64{name: 100}))
		g.watch.observe(asleep(name, fmt.Sprint("pod-", k)))
		for range 3 {
			g.asked(t, "tiny", "the desk's default/tiny")
		}
		if g.core.Declared("default/tiny") {
			t.Error("the Service is a function besides its revision")
		}
		g.mu.Lock()
		if last := g.said[len(g.said)-1]; last != "default/"+name+" awake" {
			t.Errorf("other front doors were told last %q", last)
		}
		g.mu.Unlock()
	}
	if g.waits("default/tiny-00001") || g.waits("default/tiny-00002") {
		t.Errorf("the autoscaler was told %+v", g.told)
	}
	stop()
	answered := make(chan string, 1)
	go func() { _, got := g.ask("tiny"); answered <- got }()
	for late := time.Now().Add(30 * time.Second); !g.waits("default/tiny-00002"); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("the autoscaler was told %+v, and never that a request waits", g.told)
		}
	}
	up := awake("tiny-00002", "pod-1", "10.0.0.1")
	up.Seq = 2
	g.watch.observe(up)
	if got := <-answered; got != "10.0.0.1:9000" {
		t.Errorf("answered by %s", got)
	}
}

// TestNearIsFar: when the cluster no longer has a Service, an agent's is still available.
func TestNearIsFar(t *testing.T) {
	g := newFarRig(t)
	rev := revision("tiny-00001", config.Class)
	g.watch.revision(rev)
	g.join(t, "default/tiny")
	g.asked(t, "tiny", "the desk's default/tiny")
	g.watch.noRevision(rev)
	g.asked(t, "tiny", "the desk's default/tiny")
}
