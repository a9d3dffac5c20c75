package knative

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/e2e/cluster"
)

// sink receives CloudEvents, on this machine.
type sink struct {
	url    string
	server *http.Server

	mu   sync.Mutex // guards what follows
	seen []string   // "TYPE from PRODUCER, cluster=EXTENSION", each once
	mode string     // the fault, "refuse" or "hang"; empty: none
}

// newSink listens where the pods of the cluster reach this machine.
func newSink(t *testing.T, c *cluster.Cluster) *sink {
	t.Helper()
	s := &sink{}
	var address string
	address, s.server = serveNode(t, c, s)
	s.url = "http://" + address + "/"
	return s
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	producer := strings.SplitN(r.Header.Get("Ce-Source"), "/", 3)
	what := fmt.Sprintf("%s from %s, cluster=%s", r.Header.Get("Ce-Type"), producer[min(1, len(producer)-1)], r.Header.Get("Ce-Cluster"))
	s.mu.Lock()
	if !slices.Contains(s.seen, what) {
		s.seen = append(s.seen, what)
	}
	mode := s.mode
	s.mu.Unlock()
	switch mode {
	case "refuse":
		w.WriteHeader(http.StatusInternalServerError)
	case "hang":
		<-r.Context().Done()
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// become makes it another kind of sink.
func (s *sink) become(mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
}

// lacks are those of want that have not come.
func (s *sink) lacks(want ...string) (missing []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range want {
		if !slices.Contains(s.seen, w) {
			missing = append(missing, w)
		}
	}
	return missing
}

// environment sets what a SinkBinding sets, or takes it away ("K_SINK-"), on Rouse's Deployments.
func environment(ctx context.Context, c *cluster.Cluster, variables ...string) error {
	for _, name := range []string{"deployment/rouse-activator", "deployment/rouse-autoscaler"} {
		if out, err := c.Kubectl(ctx, append([]string{"-n", "knative-serving", "set", "env", name}, variables...)...); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	for _, name := range []string{"deployment/rouse-activator", "deployment/rouse-autoscaler"} {
		if out, err := c.Kubectl(ctx, "-n", "knative-serving", "rollout", "status", name, "--timeout=120s"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

// TestSink binds Rouse's parts to a sink, under a load that is not disturbed. The sink gets the activators' demand and
// the autoscaler's input and decisions, with the extensions of the binding. A sink that refuses, hangs or is away costs
// no request.
func TestSink(t *testing.T) {
	c := rouse(t)
	s := newSink(t, c)
	steady := create(t, "sink-steady", functionImage, lasting)
	steady.ask("red blue")
	l := underLoad(t, 4, asking(steady))
	t.Cleanup(func() {
		if err := environment(context.Background(), c, "K_SINK-", "K_CE_OVERRIDES-"); err != nil {
			t.Errorf("take the sink away again: %v", err)
		}
	})
	if err := environment(t.Context(), c, "K_SINK="+s.url, `K_CE_OVERRIDES={"extensions":{"cluster":"east"}}`); err != nil {
		t.Fatal(err)
	}
	f := create(t, "sink-quick", functionImage, quick)
	f.ask("red blue")
	f.hasPods(0)
	eventually(t, "events at the sink", func() string {
		return strings.Join(s.lacks(
			api.EventDemand+" from activator, cluster=east",
			api.EventInstanceState+" from autoscaler, cluster=east",
			api.EventDecision+" from autoscaler, cluster=east"), "; ")
	})
	for _, mode := range []string{"refuse", "hang", "away"} {
		s.become(mode)
		if mode == "away" {
			_ = s.server.Close()
		}
		begin := time.Now()
		f.ask("apple pear") // the first from zero
		l.goOn(t, 50)
		if took := time.Since(begin); took > within {
			t.Errorf("while the sink is to %s, requests take %v", mode, took)
		}
	}
	for _, failure := range l.end() {
		t.Error(failure)
	}
}
