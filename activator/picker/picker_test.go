package picker_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/picker"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

const chat = `{"model":"tiny","messages":[{"role":"user","content":"hello"}]}`

// TestFromZero holds requests while the pool is empty, and while its only instance sleeps.
func TestFromZero(t *testing.T) {
	b := start(t, nil)
	const n = 8
	got := make([]result, n)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i] = b.ask(chat) })
	}
	b.eventually("all wait", func() bool { st, _ := b.a.Stats(b.name); return st.Waiting == n })
	f := b.instance("one", api.Asleep)
	b.grant(f)
	all.Wait()
	for _, r := range got {
		if r.cut != nil || r.status != http.StatusOK || !strings.Contains(r.body, `hello`) {
			t.Errorf("got %+v", r)
		}
		if r.header["x-rouse-instance"] != "one" || r.header["server-timing"] == "" {
			t.Errorf("got the header %v", r.header)
		}
	}
	if w := f.wakes.Load(); w != 1 {
		t.Errorf("%d wakes, want 1", w)
	}
	b.eventually("no slot is taken", b.idle)
}

// TestStream passes a stream event by event, and ends a cut one with an error.
func TestStream(t *testing.T) {
	b := start(t, nil)
	f := b.instance("one", api.Awake)
	const event = `data: {"choices":[{"delta":{"content":"hi"},"finish_reason":null}]}` + "\n\n"
	const last = `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n" + "data: [DONE]\n\n"
	for _, whole := range []bool{true, false} {
		f.chat = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, event)
			if whole {
				_, _ = io.WriteString(w, last)
			}
		}
		r := b.ask(`{"model":"tiny","stream":true,"messages":[]}`)
		if r.cut != nil || r.status != http.StatusOK || !strings.HasPrefix(r.body, event) {
			t.Errorf("whole %v: got %+v", whole, r)
		}
		if whole != (r.body == event+last) || !whole && (!strings.Contains(r.body, api.CodeStreamCut) || strings.Contains(r.body, "[DONE]")) {
			t.Errorf("whole %v: got %q", whole, r.body)
		}
		b.eventually("no slot is taken", b.idle)
	}
}

// TestTold checks the headers that an instance gets, and those that it does not.
func TestTold(t *testing.T) {
	b := start(t, nil)
	f := b.instance("one", api.Awake)
	r := b.ask(chat, "authorization", "Bearer secret", "cookie", "a=b", "x-rouse-tenant", "mallory", "x_rouse_tenant", "mallory", "k-revision", "x", "x-rouse-trusted", "true", "x-request-id", "mine")
	if r.status != http.StatusOK || r.header["x-request-id"] != "" && r.header["x-request-id"] != "mine" {
		t.Errorf("got %+v", r)
	}
	h := f.seen[0].Header
	for _, name := range []string{"Authorization", "Cookie", "X-Rouse-Tenant", "X_rouse_tenant", "K-Revision", "X-Rouse-Trusted"} {
		if v := h.Get(name); v != "" {
			t.Errorf("the instance got %s: %s", name, v)
		}
	}
	if h.Get("X-Request-Id") != "mine" {
		t.Errorf("the instance got the request as %q", h.Get("X-Request-Id"))
	}
}

type noOthers struct{}

func (noOthers) Served(control.ClientUse) {}

// TestPlace: beside other activators a request brings its client's place to the instance, and asks for no interim answers,
// which would go to the gateway.
func TestPlace(t *testing.T) {
	b := start(t, nil, func(d *activator.Deps) { d.Others = noOthers{} })
	f := b.instance("one", api.Awake)
	if r := b.ask(chat); r.status != http.StatusOK {
		t.Fatalf("got %+v", r)
	}
	if turn := control.TakeTurn(f.seen[0].Header); turn.Client <= control.NoClient || !turn.Quiet {
		t.Errorf("the place is %+v", turn)
	}
}

// TestRewrite sends a request to the model in a header, and tells the instance.
func TestRewrite(t *testing.T) {
	for _, name := range []string{"x-gateway-model-name-rewrite", "x-llm-d-model-name-rewrite"} {
		b := start(t, nil)
		b.instance("one", api.Awake)
		body := strings.Replace(chat, "tiny", "other", 1)
		if r := b.ask(body); r.status != http.StatusNotFound || !strings.Contains(r.body, api.CodeModelNotFound) {
			t.Errorf("%s: the model of the body: got %+v", name, r)
		}
		if r := b.ask(body, name, "tiny"); r.status != http.StatusOK || !strings.Contains(r.body, `\"model\":\"tiny\"`) {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

// TestRefused gets refusals in the API's own format, with their reason.
func TestRefused(t *testing.T) {
	b := start(t, nil)
	b.a.PutFunction(api.Function{Name: b.name, Concurrency: 1, Hold: api.Hold{Capacity: 1}})
	f := b.instance("one", api.Asleep)
	first := b.open(duplex)
	first.header(false, nil)
	first.body(chat, true)
	b.eventually("it waits", func() bool { st, _ := b.a.Stats(b.name); return st.Waiting == 1 })
	r := b.ask(chat)
	if r.status/100 == 2 || r.header["x-llm-d-request-dropped-reason"] != "rejected-saturated" || r.header["retry-after"] == "" || !strings.HasPrefix(r.body, `{"error":{`) {
		t.Errorf("got %+v", r)
	}
	if r := b.ask(`{"model":`); r.status != http.StatusBadRequest {
		t.Errorf("broken JSON: got %+v", r)
	}
	if r := b.ask(""); r.status != http.StatusBadRequest {
		t.Errorf("no body: got %+v", r)
	}
	b.grant(f)
	m := first.recv()
	if to := endpoint(t, m, m.GetRequestHeaders().GetResponse().GetHeaderMutation()); to != f.host() {
		t.Errorf("got %s, want %s", to, f.host())
	}
	first.cancel()
	b.eventually("no slot is taken", b.idle)
}

// TestModes uses the other modes of sending bodies.
func TestModes(t *testing.T) {
	b := start(t, nil)
	f := b.instance("one", api.Awake)
	for name, config := range map[string]*extproc.ProtocolConfiguration{"buffered": buffered, "bodyless": bodyless, "eager": eager} {
		t.Run(name, func(t *testing.T) {
			s := b.open(config)
			s.header(false, nil, "x-gateway-model-name", "tiny")
			m := (*extproc.ProcessingResponse)(nil)
			change := func() *extproc.HeaderMutation { return m.GetRequestHeaders().GetResponse().GetHeaderMutation() }
			switch name {
			case "buffered":
				if s.recv().GetRequestHeaders() == nil {
					t.Fatal("the header must be answered before the body comes")
				}
				s.body(chat, true)
				m = s.recv()
				change = func() *extproc.HeaderMutation { return m.GetRequestBody().GetResponse().GetHeaderMutation() }
			case "eager":
				s.body(chat[:9], false)
				s.body(chat[9:], true)
				m = s.recv()
				for range 2 {
					if s.recv().GetRequestBody() == nil {
						t.Fatal("each piece must be answered")
					}
				}
			default:
				m = s.recv()
			}
			if to := endpoint(t, m, change()); to != f.host() {
				t.Errorf("got %s, want %s", to, f.host())
			}
			st, _ := b.a.Stats(b.name)
			if st.Running != 1 {
				t.Errorf("%d requests run, want 1", st.Running)
			}
			s.answer("200", false, "content-type", "application/json")
			if s.recv().GetResponseHeaders() == nil {
				t.Error("the header of the answer must be answered")
			}
			s.answerBody("{}", true)
			if s.recv().GetResponseBody() == nil {
				t.Error("the body of the answer must be answered")
			}
			if _, err := s.Recv(); err != io.EOF {
				t.Errorf("the end: got %v", err)
			}
			b.eventually("no slot is taken", b.idle)
		})
	}
}

// TestSubset uses only endpoints that the gateway allows.
func TestSubset(t *testing.T) {
	b := start(t, nil)
	one, two := b.instance("one", api.Awake), b.instance("two", api.Awake)
	for range 8 {
		s := b.open(duplex)
		s.header(false, []any{two.host(), "10.1.2.3:80"})
		s.body(chat, true)
		m := s.recv()
		if to := endpoint(t, m, m.GetRequestHeaders().GetResponse().GetHeaderMutation()); to != two.host() {
			t.Errorf("got %s, want %s", to, two.host())
		}
		s.cancel()
		b.eventually("no slot is taken", b.idle)
	}
	s := b.open(duplex)
	s.header(false, []any{free(t)})
	s.body(chat, true)
	if r := immediate(s.recv()); r == nil || r.status != http.StatusServiceUnavailable {
		t.Errorf("an endpoint that is not ours: got %+v", r)
	}
	if n := one.served.Load(); n != 0 {
		t.Errorf("the other instance got %d requests", n)
	}
}

// TestSubsetOfSleepers wakes only allowed endpoints: an empty list, and one of unknown endpoints, are refused at
// once.
func TestSubsetOfSleepers(t *testing.T) {
	var bound atomic.Bool
	b := start(t, nil, func(d *activator.Deps) {
		d.Emitter = api.EmitterFunc(func(e api.Event) {
			var demand api.Demand
			if e.Type == api.EventDemand && json.Unmarshal(e.Data, &demand) == nil && demand.Waiting == 1 {
				bound.Store(demand.Bound && demand.Prefers == "two")
			}
		})
	})
	one, two := b.instance("one", api.Asleep), b.instance("two", api.Asleep)
	b.grant(one)
	for name, list := range map[string][]any{"empty": {}, "a stranger": {"10.1.2.3:80"}, "nothing but commas": {" , "}} {
		s := b.open(duplex)
		s.header(false, list)
		if name != "empty" && name != "nothing but commas" { // they need no body
			s.body(chat, true)
		}
		if r := immediate(s.recv()); r == nil || r.status != http.StatusServiceUnavailable || r.header["retry-after"] == "" || !strings.HasPrefix(r.body, `{"error":{`) {
			t.Errorf("%s: got %+v", name, r)
		}
		if st, _ := b.a.Stats(b.name); st.Waiting != 0 {
			t.Errorf("%s: %d requests wait", name, st.Waiting)
		}
	}
	s := b.open(duplex)
	s.header(false, []any{two.host()})
	s.body(chat, true)
	b.eventually("the autoscaler is asked for the one that is allowed", bound.Load) // the other one may be woken, but not for this request
	b.grant(two)
	m := s.recv()
	if to := endpoint(t, m, m.GetRequestHeaders().GetResponse().GetHeaderMutation()); to != two.host() {
		t.Errorf("got %s, want %s", to, two.host())
	}
	if one.wakes.Load() != 0 || two.wakes.Load() != 1 {
		t.Errorf("%d and %d wakes, want 0 and 1", one.wakes.Load(), two.wakes.Load())
	}
}

// TestSubsetWaits: a request whose endpoints are busy waits for one of them, and blocks no other; it is refused once
// they are gone.
func TestSubsetWaits(t *testing.T) {
	b := start(t, nil)
	one, two := b.instance("one", api.Awake), b.instance("two", api.Awake)
	open := func(allowed ...any) *stream {
		s := b.open(duplex)
		s.header(false, allowed)
		s.body(chat, true)
		return s
	}
	named := func(s *stream, want string) {
		t.Helper()
		m := s.recv()
		if to := endpoint(t, m, m.GetRequestHeaders().GetResponse().GetHeaderMutation()); to != want {
			t.Errorf("got %s, want %s", to, want)
		}
	}
	waiting := func(n int) {
		t.Helper()
		b.eventually("it waits", func() bool { st, _ := b.a.Stats(b.name); return st.Waiting == n })
	}
	var running []*stream
	for range 4 {
		running = append(running, open(one.host()))
		named(running[len(running)-1], one.host())
	}
	next, last := open(one.host()), open(one.host())
	waiting(2)
	named(open(), two.host())
	named(open(two.host()), two.host())
	running[0].cancel()
	got := make(chan *extproc.ProcessingResponse, 2)
	for _, s := range []*stream{next, last} {
		go func() {
			m, _ := s.Recv() // nil is checked below
			got <- m
		}()
	}
	m := <-got // whichever came first
	if to := endpoint(t, m, m.GetRequestHeaders().GetResponse().GetHeaderMutation()); to != one.host() {
		t.Errorf("got %s, want %s", to, one.host())
	}
	waiting(1)
	b.a.ObserveInstance(one.set(api.Gone))
	m = <-got
	if r := immediate(m); r == nil || r.status != http.StatusServiceUnavailable {
		t.Errorf("its endpoint is gone: got %v", m)
	}
}

// TestFallbacks names the next two that are awake and allowed after the chosen one.
func TestFallbacks(t *testing.T) {
	b := start(t, nil)
	var all []*instance
	for _, id := range []string{"one", "two", "three", "four"} {
		all = append(all, b.instance(id, api.Awake))
	}
	sleeper := b.instance("sleeper", api.Asleep)
	b.grant(sleeper)
	for _, tc := range []struct {
		allowed []any
		want    int
	}{{nil, 3}, {[]any{all[0].host(), all[1].host(), sleeper.host()}, 2}, {[]any{all[2].host()}, 1}} {
		s := b.open(duplex)
		s.header(false, tc.allowed)
		s.body(chat, true)
		m := s.recv()
		change := m.GetRequestHeaders().GetResponse().GetHeaderMutation()
		endpoint(t, m, change)
		named := strings.Split(mutation(change)["x-gateway-destination-endpoint"], ",")
		distinct := map[string]bool{}
		for _, to := range named {
			distinct[to] = true
			if to == sleeper.host() || tc.allowed != nil && !slices.Contains(tc.allowed, any(to)) {
				t.Errorf("of %v: %s is named", tc.allowed, to)
			}
		}
		if len(named) != tc.want || len(distinct) != tc.want {
			t.Errorf("of %v: got %v, want %d", tc.allowed, named, tc.want)
		}
		s.cancel()
		b.eventually("no slot is taken", b.idle)
	}
	if sleeper.wakes.Load() != 0 {
		t.Error("the sleeper was woken")
	}
}

// TestSpentAtFallback: if the fallback refuses the request, it counts as the one that gave it back.
func TestSpentAtFallback(t *testing.T) {
	b := start(t, nil)
	all := map[api.InstanceID]*instance{}
	for _, id := range []api.InstanceID{"one", "two", "three"} {
		all[id] = b.instance(string(id), api.Awake)
		all[id].set(api.Asleep) // unreported
	}
	s := b.open(duplex)
	s.header(false, nil, "x-request-id", "mine")
	s.body(chat, true)
	named := strings.Split(mutation(s.recv().GetRequestHeaders().GetResponse().GetHeaderMutation())["x-gateway-destination-endpoint"], ",")
	s.recv()
	s.served = named[1]
	s.answer("503", false, strings.ToLower(control.HeaderRefused), api.CodeAsleep)
	s.answerBody(`{"error":{"message":"it sleeps"}}`, true)
	if got := mutation(s.recv().GetResponseHeaders().GetResponse().GetHeaderMutation()); got["retry-after"] == "" {
		t.Errorf("got %v", got)
	}
	var got []string
	for _, p := range b.a.Picks("mine") {
		got = append(got, all[p.Instance].host())
	}
	if want := named; !slices.Equal(got, want) {
		t.Errorf("chosen were %v, want %v", got, want)
	}
	s.cancel()
	b.eventually("no slot is taken", b.idle)
}

// TestServedByStranger: an endpoint that is no instance has a port that the pool should not have.
func TestServedByStranger(t *testing.T) {
	var log strings.Builder
	b := start(t, nil, func(d *activator.Deps) { d.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	b.instance("one", api.Awake)
	s := b.open(duplex)
	s.header(false, nil)
	s.body(chat, true)
	s.recv()
	s.recv()
	s.served = "10.1.2.3:8000"
	s.answer("200", false, "content-type", "application/json")
	s.answerBody("{}", true)
	for _, err := s.Recv(); err == nil; _, err = s.Recv() {
	}
	b.eventually("no slot is taken", b.idle)
	if got := log.String(); !strings.Contains(got, "targetPorts") || !strings.Contains(got, "10.1.2.3:8000") {
		t.Errorf("got the log %s", got)
	}
}

// TestCut cuts streams at each phase, many at once: all slots and places in the queue are freed.
func TestCut(t *testing.T) {
	b := start(t, nil)
	f := b.instance("one", api.Awake)
	phases := []func(s *stream){
		func(*stream) {},
		func(s *stream) { s.header(false, nil) },
		func(s *stream) { s.header(false, nil); s.body(chat[:5], false) },
		func(s *stream) { s.header(false, nil); s.body(chat, true) },
		func(s *stream) { s.header(false, nil); s.body(chat, true); s.recv() },
		func(s *stream) { s.header(false, nil); s.body(chat, true); s.recv(); s.answer("200", false) },
		func(s *stream) {
			s.header(false, nil)
			s.body(chat, true)
			s.recv()
			s.answer("200", false, "content-type", "text/event-stream")
			s.answerBody("data: {}\n\n", false)
		},
		func(s *stream) {
			s.header(false, nil)
			for _, c := range chat {
				s.body(string(c), false)
			}
			_ = s.Send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestTrailers{RequestTrailers: &extproc.HttpTrailers{}}})
		},
		func(s *stream) {
			s.header(false, nil)
			s.body(chat, true)
			s.recv()
			s.served = "127.0.0.1:1"
			s.answer("200", false)
			_ = s.Send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extproc.HttpTrailers{}}})
		},
	}
	const n = 1000
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			s := b.open(duplex)
			phases[i%len(phases)](s)
			if i%2 == 0 {
				_ = s.CloseSend()
			}
			s.cancel()
		})
	}
	all.Wait()
	b.eventually("no slot is taken", b.idle)
	if r := b.ask(chat); r.status != http.StatusOK {
		t.Errorf("after that: got %+v", r)
	}
	if f.served.Load() != 1 {
		t.Errorf("the instance got %d requests from the activator itself", f.served.Load()-1)
	}
}

// TestDisorder refuses messages out of order.
func TestDisorder(t *testing.T) {
	b := start(t, nil)
	b.instance("one", api.Awake)
	for name, send := range map[string]func(s *stream){
		"nothing":      func(s *stream) { _ = s.Send(&extproc.ProcessingRequest{}) },
		"body first":   func(s *stream) { s.body(chat, true) },
		"answer first": func(s *stream) { s.answer("200", true) },
		"two headers":  func(s *stream) { s.header(false, nil); s.header(false, nil) },
		"two bodies":   func(s *stream) { s.header(false, nil); s.body(chat, true); s.body(chat, true) },
		"more answer":  func(s *stream) { s.header(false, nil); s.answerBody("x", true) },
		"no status":    func(s *stream) { s.header(false, nil); s.body(chat, true); s.recv(); s.answer("", true) },
		"answer, twice": func(s *stream) {
			s.header(false, nil)
			s.body(chat, true)
			s.recv()
			s.answer("200", false)
			s.answer("200", false)
		},
	} {
		s := b.open(duplex)
		send(s)
		for {
			_, err := s.Recv()
			if err == nil {
				continue
			}
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: got %v", name, err)
			}
			break
		}
		b.eventually("no slot is taken", b.idle)
	}
}

// TestGatewayAnswers lets a gateway answer by itself while a request waits.
func TestGatewayAnswers(t *testing.T) {
	b := start(t, nil)
	s := b.open(duplex)
	s.header(false, nil)
	s.body(chat, true)
	b.eventually("it waits", func() bool { st, _ := b.a.Stats(b.name); return st.Waiting == 1 })
	s.answer("504", false)
	if s.recv().GetResponseHeaders() == nil {
		t.Error("the gateway's header does not go on")
	}
	s.answerBody("too late", true)
	if p := s.recv().GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse(); string(p.GetBody()) != "too late" || !p.GetEndOfStream() {
		t.Errorf("got %v", p)
	}
	b.eventually("nothing waits", b.idle)
	_ = s.CloseSend()
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("the end: got %v", err)
	}
}

// TestSpent answers a request that the gateway has sent to an instance that refuses it.
func TestSpent(t *testing.T) {
	b := start(t, nil)
	f := b.instance("one", api.Awake)
	f.set(api.Asleep) // unreported
	r := b.ask(chat)
	if r.status != http.StatusServiceUnavailable || r.header["retry-after"] == "" || !strings.Contains(r.body, "try again") {
		t.Errorf("got %+v", r)
	}
	b.eventually("no slot is taken", b.idle)
}

// TestFront names the activators, at once, without any instance.
func TestFront(t *testing.T) {
	front := free(t)
	b := start(t, func(c *picker.Config) { c.Front = front })
	s := b.open(duplex)
	s.header(false, nil)
	m := s.recv()
	if to := endpoint(t, m, m.GetRequestHeaders().GetResponse().GetHeaderMutation()); to != front {
		t.Errorf("got %s, want %s", to, front)
	}
	s.body("a", true)
	if p := s.recv().GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse(); string(p.GetBody()) != "a" || !p.GetEndOfStream() {
		t.Errorf("got %v", p)
	}
	s.answer("200", false)
	s.recv()
	s.answerBody("b", true)
	if p := s.recv().GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse(); string(p.GetBody()) != "b" {
		t.Errorf("got %v", p)
	}
	_ = s.CloseSend()
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("the end: got %v", err)
	}
	for _, tc := range []struct {
		allowed []any
		want    string // empty: a refusal
	}{
		{[]any{"10.0.0.1:8012", front, "10.0.0.2:8012", "10.0.0.3:8012"}, front + ",10.0.0.1:8012,10.0.0.2:8012"},
		{[]any{"127.0.0.1"}, front},
		{[]any{"10.0.0.1:8012"}, "10.0.0.1:8012"},
		{[]any{"10.0.0.1"}, ""},
		{[]any{}, ""},
	} {
		s := b.open(duplex)
		s.header(false, tc.allowed)
		m := s.recv()
		if r := immediate(m); tc.want == "" && (r == nil || r.status != http.StatusServiceUnavailable) {
			t.Errorf("%v: got %v, want 503", tc.allowed, m)
		}
		if to := mutation(m.GetRequestHeaders().GetResponse().GetHeaderMutation())["x-gateway-destination-endpoint"]; to != tc.want {
			t.Errorf("%v: got %s, want %s", tc.allowed, to, tc.want)
		}
		s.cancel()
	}
}

// TestHealth answers the protocol's health checks.
func TestHealth(t *testing.T) {
	b := start(t, nil)
	client := grpc_health_v1.NewHealthClient(b.conn)
	for _, service := range []string{"", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"} {
		got, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("%s: got %v, %v", service, got, err)
		}
	}
	if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "x"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: got %v", err)
	}
}
