package proxy_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
)

// speculative is a gate that admits requests speculatively, validated by judge.
type speculative struct {
	*gate
	judge func(cut context.CancelCauseFunc) *api.Error
}

func (g speculative) EnterBehind(ctx context.Context, _ time.Duration) (string, context.Context, func() *api.Error, *api.Error) {
	base, refused := g.Enter()
	inside, cut := context.WithCancelCause(ctx)
	return base, inside, func() *api.Error { return g.judge(cut) }, refused
}

func (b *bench) behind(t *testing.T, body string) (*http.Response, string) {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL+"/v1/completions", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(control.HeaderWait, "true")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(raw)
}

// The answer to a speculative request is passed on once it is validated, and thrown away if it is refused.
func TestBehindAWake(t *testing.T) {
	bad := api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "it says something else")
	for name, c := range map[string]struct {
		judge  func(answered <-chan struct{}, cut context.CancelCauseFunc) *api.Error
		status int
	}{
		"good": {func(answered <-chan struct{}, _ context.CancelCauseFunc) *api.Error { <-answered; return nil }, 200},
		"bad":  {func(_ <-chan struct{}, cut context.CancelCauseFunc) *api.Error { cut(bad); return bad }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			answered := make(chan struct{})
			b := set(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(answered)
				if r.Header.Get(control.HeaderWait) != "" {
					t.Errorf("the runtime sees %s", control.HeaderWait)
				}
				_, _ = w.Write([]byte(`{"text":"garbage or not"}`))
			}, func(cfg *proxy.Config) {
				cfg.Gate = speculative{cfg.Gate.(*gate), func(cut context.CancelCauseFunc) *api.Error { return c.judge(answered, cut) }}
			})
			resp, body := b.behind(t, `{"model":"m"}`)
			if resp.StatusCode != c.status || strings.Contains(body, "garbage") != (c.status == 200) {
				t.Errorf("%d %s, want %d", resp.StatusCode, body, c.status)
			}
			if got := resp.Header.Get(control.HeaderRefused); (got == api.CodeUnhealthy) != (c.status == 503) {
				t.Errorf("refused: %q", got)
			}
			b.wantIdle(t)
		})
	}
}

// A container's request is never speculative: its answer could be thrown away after the container has done it.
func TestNothingBehindAContainersWake(t *testing.T) {
	b := set(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(control.HeaderWait) != "" {
			t.Errorf("the container sees %s", control.HeaderWait)
		}
		_, _ = w.Write([]byte("done"))
	}, everything, func(cfg *proxy.Config) {
		cfg.Gate = speculative{cfg.Gate.(*gate), func(context.CancelCauseFunc) *api.Error {
			t.Error("it entered speculatively")
			return nil
		}}
	})
	if resp, body := b.behind(t, "x"); resp.StatusCode != http.StatusOK || body != "done" {
		t.Errorf("%s %s", resp.Status, body)
	}
	b.wantIdle(t)
}

// A request that is cut off before the runtime has answered was refused: it may be sent elsewhere.
func TestBehindAWakeAndCutOff(t *testing.T) {
	bad := api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "it says something else")
	asked := make(chan struct{})
	g := &cutting{cuts: make(chan context.CancelCauseFunc, 1)}
	b := set(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else nobody notices that the client leaves
		close(asked)
		<-r.Context().Done()
	}, func(cfg *proxy.Config) { g.gate = cfg.Gate.(*gate); cfg.Gate = g })
	go func() {
		<-asked
		(<-g.cuts)(bad)
	}()
	resp, body := b.behind(t, `{"model":"m"}`)
	if resp.Header.Get(control.HeaderRefused) != api.CodeUnhealthy || code(t, body) != api.CodeUnhealthy {
		t.Errorf("%v %s, want a refusal", resp, body)
	}
	b.wantIdle(t)
}

type cutting struct {
	*gate
	cuts chan context.CancelCauseFunc
}

func (g *cutting) EnterBehind(ctx context.Context, _ time.Duration) (string, context.Context, func() *api.Error, *api.Error) {
	base, refused := g.Enter()
	inside, cut := context.WithCancelCause(ctx)
	g.cuts <- cut
	return base, inside, func() *api.Error { <-inside.Done(); return nil }, refused
}

// A bad request with a wake is refused before the wake is over.
func TestBehindAWakeAndBad(t *testing.T) {
	b := set(t, func(http.ResponseWriter, *http.Request) { t.Error("the runtime was asked") },
		func(cfg *proxy.Config) { cfg.Gate = never{cfg.Gate.(*gate)} })
	if resp, body := b.behind(t, "{\"model\":\"\xff\"}"); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "UTF-8") {
		t.Errorf("%d %s, want 400", resp.StatusCode, body)
	}
	b.wantIdle(t)
}

// never is a gate that nothing may reach.
type never struct{ *gate }

func (never) EnterBehind(context.Context, time.Duration) (string, context.Context, func() *api.Error, *api.Error) {
	panic("a bad request waits")
}
