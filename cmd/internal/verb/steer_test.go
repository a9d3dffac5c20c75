package verb

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api/admin"
)

// TestOrderSaysWhyItStarts: a function that starts again right after it was stopped says why.
func TestOrderSaysWhyItStarts(t *testing.T) {
	for state, want := range map[string]string{
		"starting": "m is starting: a request is foreseen between 12:00 and 12:05\n",
		"asleep":   "m is asleep\n",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := `{"instances":[{"instance":"m-0002","state":"` + state + `"}]}`
			if r.URL.Path == admin.FunctionPath("default/m", "/why") {
				body = `[{"action":"stop","reason":"asked for"},{"action":"start","reason":"a request is foreseen between 12:00 and 12:05"}]`
			}
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(server.Close)
		s := &Server{Client: &Client{HTTP: server.Client(), URL: func(path string) string { return server.URL + path }}}
		cmd, out := &cobra.Command{}, &strings.Builder{}
		cmd.SetOut(out)
		cmd.SetContext(t.Context())
		if err := s.order(cmd, &Match{Name: "m"}, Function{Name: "default/m"}, "/stop"); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v; want %q", state, out, err, want)
		}
	}
}

// TestScaledSaysTheLimit: a number that the function's limits do not allow is not taken without a word.
func TestScaledSaysTheLimit(t *testing.T) {
	f := admin.Function{Desired: 1, Scale: &admin.Override{Replicas: 5}}
	f.Function.MaxScale = 1
	if got, want := scaled("m", f), "(not 5: min-scale is 0, max-scale 1), 0 awake"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
	f.Desired = 5
	if got := scaled("m", f); strings.Contains(got, "not 5") {
		t.Errorf("got %q", got)
	}
}

// TestTraceWithoutAWake says how to have one.
func TestTraceWithoutAWake(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[]")) }))
	t.Cleanup(server.Close)
	find := func(_ context.Context, name string) (*Match, error) {
		return &Match{Name: name, Functions: []Function{{Name: "default/pico"}}}, nil
	}
	p := Program{Name: "rouse", Connect: func(*cobra.Command) (*Server, error) {
		return &Server{Client: &Client{HTTP: server.Client(), URL: func(path string) string { return server.URL + path }}, Find: find}, nil
	}}
	cmd := p.Trace()
	cmd.SetArgs([]string{"pico"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "no wake of pico is on record: ask it something") {
		t.Errorf("got %v", err)
	}
}
