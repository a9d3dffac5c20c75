package functions_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// plane is a fake control plane.
type plane struct {
	t      *testing.T
	server *httptest.Server
	joins  chan control.RegisterRequest // buffered, so that no instance waits for the test
	events chan api.InstanceStatus      // the same

	mu      sync.Mutex
	token   string     // of the known instance
	refusal *api.Error // of joins; nil: none
	answer  control.RegisterAnswer
}

func newPlane(t *testing.T, answer control.RegisterAnswer) *plane {
	p := &plane{t: t, joins: make(chan control.RegisterRequest, 100), events: make(chan api.InstanceStatus, 1000), answer: answer}
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	return p
}

func (p *plane) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch r.URL.Path {
	case control.PathRegister:
		var in control.RegisterRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || token == "" {
			p.t.Errorf("join with token %q: %v", token, err)
		}
		p.joins <- in
		if p.refusal != nil {
			api.WriteError(w, p.refusal)
			return
		}
		p.token = token
		api.WriteJSON(w, http.StatusOK, p.answer)
	case control.PathEvents:
		if token != p.token {
			api.WriteError(w, api.Errorf(http.StatusNotFound, "", "unknown instance: join first"))
			return
		}
		e, err := cloudevent.Receive(r)
		var s api.InstanceStatus
		if err != nil || json.Unmarshal(e.Data, &s) != nil || e.Subject != string(s.Function) {
			p.t.Errorf("event %+v, %v", e, err)
		}
		p.events <- s
	default:
		p.t.Errorf("%s %s is no path of the control plane", r.Method, r.URL.Path)
	}
}

// until waits for a matching event.
func (p *plane) until(what string, wanted func(api.InstanceStatus) bool) api.InstanceStatus {
	p.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case s := <-p.events:
			if wanted(s) {
				return s
			}
		case <-deadline:
			p.t.Fatalf("no event: %s", what)
		}
	}
}

func is(state api.State) func(api.InstanceStatus) bool {
	return func(s api.InstanceStatus) bool { return s.State == state }
}

// pod returns an instance's configuration in a pod whose control plane is p.
func (i *instance) pod(p *plane) functions.Config {
	cfg := i.config()
	own := cfg.Function.Runtime
	cfg.Events, cfg.Listen, cfg.Epoch = "", "http://127.0.0.1:0", 0
	cfg.Function = api.Function{Name: "team/tiny-00001", Service: "team/tiny"}
	cfg.Instance, cfg.Devices, cfg.Version = "tiny-00001-x", []api.DeviceID{"GPU-1"}, "v9"
	cfg.Join = &functions.Join{Control: api.Endpoint(p.server.URL), Namespace: "team", Revision: "tiny-00001", Merge: func(f api.Function) api.Function {
		f.Runtime.Kind, f.Runtime.Command = cmp.Or(f.Runtime.Kind, api.RuntimeCommand), own.Command
		return f
	}}
	return cfg
}

func (i *instance) status(method, path, token string) int {
	i.t.Helper()
	req, err := http.NewRequest(method, i.at.URL(path), strings.NewReader("{}"))
	if err != nil {
		i.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := i.http.Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

var declared = control.RegisterAnswer{
	Function: api.Function{Name: "team/tiny-00001", Service: "team/tiny", Model: "fake", Concurrency: 3},
	Endpoint: "http://10.1.2.3:8080", Epoch: 7,
}

func TestAnInstanceBecomesWhatItsControlPlaneSays(t *testing.T) {
	p := newPlane(t, declared)
	p.set(func() { p.refusal = api.Errorf(http.StatusNotFound, "", "no such pod yet") })
	i := newInstance(t)
	i.run(i.pod(p))
	for range 2 { // it tries again
		got := <-p.joins
		if got.Instance != "tiny-00001-x" || got.Namespace != "team" || got.Revision != "tiny-00001" || !strings.HasSuffix(string(i.at), ":"+jsonText(t, got.Port)) || len(got.Devices) != 1 || got.Version != "v9" {
			t.Errorf("join %+v of an instance at %s", got, i.at)
		}
	}
	// It listens all the time.
	resp, body, err := i.ask("/v1/chat/completions", whole, "")
	if err != nil || resp.StatusCode != 503 || resp.Header.Get(control.HeaderRefused) != api.CodeLoading {
		t.Errorf("before it has joined: %v, %v, %s; want a refusal", resp, err, body)
	}
	if got := i.status(http.MethodGet, "/healthz", ""); got != 200 {
		t.Errorf("alive: %d", got)
	}
	if got := i.status(http.MethodGet, "/readyz", ""); got != 503 {
		t.Errorf("ready before it has joined: %d", got)
	}
	p.set(func() { p.refusal = nil })
	s := p.until("awake", is(api.Awake))
	if s.Instance != "tiny-00001-x" || s.Function != "team/tiny-00001" || s.Endpoint != "http://10.1.2.3:8080" || s.Epoch != 7 || s.Concurrency != 3 {
		t.Errorf("status %+v", s)
	}
	i.wantAnswer()
	for token, want := range map[string]int{"": 401, "other": 401, p.token: 200} {
		if got := i.status(http.MethodGet, control.PathState, token); got != want {
			t.Errorf("state with token %q: %d, want %d", token, got, want)
		}
	}
	api9 := control.New(http.DefaultTransport, func() string { return p.token })
	if _, err := api9.Sleep(t.Context(), i.at, control.SleepRequest{Level: 2, Epoch: 8}); err != nil {
		t.Error(err)
	}
	if got := i.status(http.MethodGet, "/readyz", ""); got != 503 {
		t.Errorf("ready asleep: %d", got)
	}
	p.until("asleep", is(api.Asleep))
	// Anybody may ask for a report, any number of times.
	for range 50 {
		if got := i.status(http.MethodPost, control.PathReport, ""); got != http.StatusAccepted {
			t.Fatalf("report: %d", got)
		}
	}
	p.until("a report", is(api.Asleep))
	if n := len(p.events); n > 5 {
		t.Errorf("%d reports to fifty requests", n)
	}
	if got := i.status(http.MethodGet, control.PathReport, ""); got != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", got)
	}
}

func jsonText(t *testing.T, v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A restarted control plane has forgotten all instances.
func TestAForgottenInstanceJoinsAgain(t *testing.T) {
	p := newPlane(t, declared)
	i := newInstance(t)
	i.run(i.pod(p))
	p.until("awake", is(api.Awake))
	<-p.joins
	p.set(func() { p.token = "" })
	if got := i.status(http.MethodPost, control.PathReport, ""); got != http.StatusAccepted {
		t.Fatal(got)
	}
	<-p.joins
	p.until("the report after the second join", is(api.Awake))
}

// Without its control plane an instance follows its command line, and reports when the control plane is back.
func TestAnInstanceGoesOnAlone(t *testing.T) {
	for name, refusal := range map[string]*api.Error{
		"nobody answers": api.Errorf(http.StatusServiceUnavailable, "", "starting"),
		"not ours":       api.Errorf(http.StatusNotFound, api.CodeUnsupported, "the class is kpa"),
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t, declared)
			p.set(func() { p.refusal = refusal })
			i := newInstance(t)
			cfg := i.pod(p)
			cfg.Function.Runtime.Command = []string{"it names one itself"}
			cfg.Join.Patience = 20 * time.Millisecond
			own := cfg.Join.Merge
			cfg.Join.Merge = func(f api.Function) api.Function {
				f.Model = cmp.Or(f.Model, "fake")
				return own(f)
			}
			i.run(cfg)
			deadline := time.Now().Add(10 * time.Second)
			for i.status(http.MethodGet, "/readyz", "") != 200 {
				if time.Now().After(deadline) {
					t.Fatal("never ready")
				}
			}
			i.wantAnswer()
			p.set(func() { p.refusal = nil })
			if refusal.Code == "" {
				s := p.until("the report after a late join", is(api.Awake))
				for s.Endpoint != declared.Endpoint {
					s = p.until("a report with its address", is(api.Awake))
				}
			}
		})
	}
}

// A revision that is declared wrongly does not run, whatever its command line says.
func TestAWrongRevisionWaits(t *testing.T) {
	p := newPlane(t, declared)
	p.set(func() { p.refusal = api.Errorf(http.StatusUnprocessableEntity, "", "annotation rouse.dev/x: unknown") })
	i := newInstance(t)
	cfg := i.pod(p)
	cfg.Function.Runtime.Model = "own"
	cfg.Join.Patience = 2 * time.Second // a busy machine's first join takes less
	began := time.Now()
	i.run(cfg)
	for time.Since(began) < cfg.Join.Patience+time.Second {
		<-p.joins
	}
	resp, body, err := i.ask("/v1/chat/completions", whole, "")
	if err != nil || resp.StatusCode != 503 || strings.Contains(body, "rouse.dev/x") || !strings.Contains(body, api.CodeLoading) {
		t.Errorf("%v, %v, %s; want a refusal without what the control plane says", resp, err, body)
	}
}

// An instance that can't start says so and does not exit: it would only be restarted.
func TestAnInstanceThatCannotBeWhatItIsToldToBe(t *testing.T) {
	answer := declared
	answer.Function.Runtime.Kind = "cuda"
	p := newPlane(t, answer)
	i := newInstance(t)
	stop := i.run(i.pod(p))
	s := p.until("unhealthy", is(api.Unhealthy))
	if !s.GaveUp || !strings.Contains(s.Message, "cuda") || s.Endpoint != answer.Endpoint {
		t.Errorf("status %+v", s)
	}
	resp, body, err := i.ask("/v1/chat/completions", whole, "")
	if err != nil || resp.StatusCode != 503 || strings.Contains(body, "cuda") || !strings.Contains(body, api.CodeUnhealthy) {
		t.Errorf("%v, %v, %s; want a refusal that leaves the reason to the status", resp, err, body)
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, control.PathState: 401} {
		if got := i.status(http.MethodGet, path, ""); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	client := control.New(http.DefaultTransport, func() string { return p.token })
	if got, err := client.State(t.Context(), i.at); err != nil || got.State != api.Unhealthy || got.Seq <= s.Seq {
		t.Errorf("state %+v, %v", got, err)
	}
	if got, err := client.Stop(t.Context(), i.at, control.StopRequest{}); err != nil || got.State != api.Gone {
		t.Errorf("stop %+v, %v", got, err)
	}
	p.until("gone", is(api.Gone))
	stop()
}

// A pod that claims GPUs for another runs nothing, and does not end while its claim is used.
func TestAnInstanceThatClaimsForAnother(t *testing.T) {
	answer := declared
	answer.Role = control.RoleRequester
	p := newPlane(t, answer)
	i := newInstance(t)
	stop := i.run(i.pod(p))
	p.until("a claim for nobody", is(api.Asleep))
	for path, want := range map[string]int{"/healthz": 200, "/ready": 503, "/v1/chat/completions": 503, control.PathState: 401} {
		if got := i.status(http.MethodGet, path, ""); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	if got := i.status(http.MethodGet, "/v1/dual-pods/accelerators", p.token); got != 200 {
		t.Errorf("accelerators: %d", got)
	}
	if got := i.status(http.MethodPost, "/v1/become-ready", p.token); got != 200 {
		t.Errorf("become ready: %d", got)
	}
	if s := p.until("a claim for a provider", is(api.Awake)); len(s.Devices) != 1 || s.Endpoint != answer.Endpoint {
		t.Errorf("status %+v", s)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop()
	}()
	if got := i.status(http.MethodPost, "/v1/release", p.token); got != 200 {
		t.Errorf("release: %d", got)
	}
	<-ended
}

// An instance that has begun to run a model before it learns that it only claims for another ends, and says why.
func TestAnInstanceLearnsLateThatItClaims(t *testing.T) {
	p := newPlane(t, declared)
	i := newInstance(t)
	cfg := i.pod(p)
	done := make(chan error, 1)
	listening := make(chan api.Endpoint, 1)
	cfg.Listening = func(at api.Endpoint) { listening <- at }
	go func() { done <- functions.Run(t.Context(), cfg) }()
	i.at = <-listening
	p.until("awake", is(api.Awake))
	p.set(func() { p.answer.Role, p.token = control.RoleRequester, "" })
	i.status(http.MethodPost, control.PathReport, "")
	if err := <-done; err == nil || !strings.Contains(err.Error(), "claims GPUs for another") {
		t.Errorf("it ends with %v, want why", err)
	}
}
