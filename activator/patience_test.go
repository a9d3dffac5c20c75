package activator

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestHeldWhileANodeIsProvisioned: a request whose pod has no node is held for its own time limit, which stands still
// while a node is being provisioned. The comments of its stream, and its refusal, give the reason.
func TestHeldWhileANodeIsProvisioned(t *testing.T) {
	for name, tt := range map[string]struct {
		provisioned time.Duration // 0: never
		header      string
		answered    time.Duration
		comment     string
		stage       string // empty: a node is provisioned
	}{
		"no node, and none is added":     {answered: 5 * time.Minute, comment: `: rouse stage=unschedulable waited=1.0s why="0/1 nodes: Insufficient cpu"`},
		"a node comes after an hour":     {provisioned: time.Hour, answered: time.Hour + 2*time.Second, comment: `: rouse stage=provisioning-node waited=6.0s why="gpu-pool 0->1"`},
		"a model is fetched for an hour": {provisioned: time.Hour, answered: time.Hour + 2*time.Second, comment: "stage=fetching", stage: api.StepFetching},
		"its client has no such time":    {provisioned: time.Hour, header: "30s", answered: 30 * time.Second, comment: "stage=provisioning-node"},
		"and a node that never does":     {provisioned: -time.Hour, answered: time.Hour + 5*time.Minute, comment: "stage=provisioning-node"},
		"a node, but then no instance":   {provisioned: -time.Minute, answered: 6 * time.Minute, comment: "stage=unschedulable"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := transportFunc(func(r *http.Request) (*http.Response, error) {
					_ = r.Body.Close()
					return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader("data: [DONE]\n\n"))}, nil
				})
				a, err := New(Config{Name: "one"}, Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: wakerFunc(nil), Transport: transport})
				if err != nil {
					t.Fatal(err)
				}
				a.PutFunction(api.Function{Name: "default/m"})
				seq := uint64(0)
				is := func(state api.State, stage, message string) {
					seq++
					a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: state, Stage: stage, Message: message, Seq: seq, Endpoint: "unix:/s", Concurrency: 1})
				}
				start := time.Now()
				if tt.stage == "" {
					tt.stage = api.StageProvisioning
				}
				is(api.Starting, api.StageUnschedulable, "0/1 nodes: Insufficient cpu")
				w := httptest.NewRecorder()
				answered := make(chan time.Duration, 1)
				go func() {
					r := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{"model":"m","stream":true}`))
					if tt.header != "" {
						r.Header.Set("X-Request-Timeout", tt.header)
					}
					a.Handler().ServeHTTP(w, r)
					answered <- time.Since(start)
				}()
				if tt.provisioned != 0 {
					time.Sleep(2 * time.Second)
					is(api.Starting, tt.stage, "gpu-pool 0->1")
					time.Sleep(max(tt.provisioned, -tt.provisioned))
					if tt.provisioned > 0 {
						is(api.Awake, "", "")
					} else {
						is(api.Starting, api.StageUnschedulable, "0/1 nodes: Insufficient cpu")
					}
				}
				if got := <-answered; got < tt.answered || got > tt.answered+time.Second {
					t.Errorf("answered after %s, want %s", got, tt.answered)
				}
				body := w.Body.String()
				if !strings.Contains(body, tt.comment) {
					t.Errorf("the stream has no %q:\n%.600s", tt.comment, body)
				}
				if served := strings.Contains(body, "[DONE]") && !strings.Contains(body, "error"); served != (tt.provisioned > 0 && tt.header == "") {
					t.Errorf("served is %t:\n%.600s", served, body[max(0, len(body)-600):])
				}
				if tt.provisioned <= 0 && !strings.Contains(body, `took the request within 5m0s (rouse.dev/hold-timeout): 0/1 nodes: Insufficient cpu`) {
					t.Errorf("the refusal does not say why:\n%.600s", body[max(0, len(body)-600):])
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_ = a.Run(ctx)
			})
		})
	}
}
