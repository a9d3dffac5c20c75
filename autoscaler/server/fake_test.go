package server

import (
	"time"

	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// Tokens of the tests.
const (
	clusterToken = "the-cluster's-own-token"
	podToken     = "a-token-of-the-pod-itself"
)

// brain is a decider that notes what it is asked.
type brain struct {
	views []admin.Function
	err   error

	mu    sync.Mutex // guards asked
	asked []string
}

func (b *brain) note(words ...string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, strings.Join(words, " "))
	return b.err
}

func (b *brain) Receive(e api.Event) error { return b.note("receive", e.Type, e.Subject) }
func (b *brain) List() []admin.Function    { return b.views }
func (b *brain) Devices() []admin.Device   { return make([]admin.Device, 1) }

func (b *brain) History(uint64) admin.History { return admin.History{} }

func (b *brain) CopyRecord(w io.Writer) error {
	_, err := io.WriteString(w, "the record")
	return err
}

func (b *brain) Usage(q admin.UsageQuery) admin.Usage { return admin.Usage{Since: q.From, Until: q.To} }

func (b *brain) Status(name api.FunctionName) (admin.Function, bool) {
	for _, v := range b.views {
		if v.Function.Name == name {
			return v, true
		}
	}
	return admin.Function{}, false
}

func (b *brain) WakeTraces(name api.FunctionName) []api.WakeTrace {
	return []api.WakeTrace{{Function: name, Instance: "i-1", Path: "hot"}}
}

func (b *brain) Why(name api.FunctionName) []api.Decision {
	return []api.Decision{{Function: name, Action: "wait", Reason: "no room"}}
}
func (b *brain) Wake(_ context.Context, f api.FunctionName) error { return b.note("wake", string(f)) }
func (b *brain) Scale(_ context.Context, f api.FunctionName, n int, lifetime time.Duration, by string) error {
	return b.note("scale", fmt.Sprint(f, " ", n, " for ", lifetime, " by ", by))
}
func (b *brain) Stop(_ context.Context, f api.FunctionName) error { return b.note("stop", string(f)) }
func (b *brain) Sleep(_ context.Context, f api.FunctionName, l api.Level) error {
	return b.note("sleep", string(f), string(rune('0'+l)))
}

// pods is a fleet of what the test says.
type pods struct {
	joined   map[api.InstanceID]string // the token it joined with
	resolve  map[api.FunctionName][]api.FunctionName
	endpoint api.Endpoint

	mu      sync.Mutex // guards reports
	reports []api.InstanceStatus
}

func (p *pods) Join(_ context.Context, r control.RegisterRequest, from netip.Addr, token string) (control.RegisterAnswer, error) {
	if r.Instance == "unknown" {
		return control.RegisterAnswer{}, api.Errorf(http.StatusNotFound, "", "there is no pod unknown yet")
	}
	return control.RegisterAnswer{Function: api.Function{Name: "default/tiny-00001"}, Endpoint: api.Endpoint("http://" + from.String() + ":8080"), Epoch: uint64(len(token))}, nil
}

func (p *pods) Report(s api.InstanceStatus, _ netip.Addr, token string) error {
	want, joined := p.joined[s.Instance]
	switch {
	case !joined:
		return api.Errorf(http.StatusNotFound, "", "unknown instance %s: join first", s.Instance)
	case want != token:
		return api.Errorf(http.StatusForbidden, "", "%s joined with another token", s.Instance)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports = append(p.reports, s)
	return nil
}

func (p *pods) Resolve(name api.FunctionName) []api.FunctionName {
	if r, found := p.resolve[name]; found {
		return r
	}
	return []api.FunctionName{name}
}

func (p *pods) Reach(id api.InstanceID) (*control.Client, api.Endpoint, error) {
	if p.endpoint == "" {
		return nil, "", api.Errorf(http.StatusNotFound, "", "%s has not joined", id)
	}
	return control.New(http.DefaultTransport, nil), p.endpoint, nil
}

// bench is a server with fakes around it.
type bench struct {
	t       *testing.T
	brain   *brain
	pods    *pods
	events  *cloudevent.Log
	handler http.Handler
	peers   *Activators
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, events: cloudevent.NewLog(),
		brain: &brain{views: []admin.Function{
			{Function: api.Function{Name: "default/tiny-00002", Service: "default/tiny", Runtime: api.Runtime{Env: []string{"SECRET=1"}}},
				Instances: []api.InstanceStatus{{Instance: "tiny-1"}, {Instance: "tiny-2"}}},
			{Function: api.Function{Name: "default/tiny-00001", Service: "default/tiny"}},
		}},
		pods: &pods{joined: map[api.InstanceID]string{"tiny-1": podToken},
			resolve: map[api.FunctionName][]api.FunctionName{"default/tiny": {"default/tiny-00002", "default/tiny-00001"}}}}
	log := slog.New(slog.DiscardHandler)
	token := func() string { return clusterToken }
	b.peers = NewActivators(NewTransport(), token, log)
	h, err := Handler(Config{Decider: b.brain, Fleet: b.pods, Activators: b.peers, Events: b.events, Token: token, Log: log,
		Info: func() Info { return Info{Version: "v1", Leader: "pod-a"} }})
	if err != nil {
		t.Fatal(err)
	}
	b.handler = h
	return b
}

// ask sends a request; header are name and value by turns.
func (b *bench) ask(method, path, body string, header ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, path, strings.NewReader(body))
	r.RemoteAddr = "[::ffff:10.244.0.7]:41234" // 10.244.0.7 on a socket of both families
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

// addr is the nth address of a large network.
func addr(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}
