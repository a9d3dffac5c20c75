package supervise_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// missing returns a probe's error at a server that answers each of OpenAI's paths with status.
func missing(t *testing.T, status int) error {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(s.Close)
	r, err := runtime.New(runtime.Config{Spec: api.Runtime{Kind: api.RuntimeCommand, Endpoint: api.Endpoint(s.URL)}, Model: "m", Transport: http.DefaultTransport})
	if err != nil {
		t.Fatal(err)
	}
	if err = r.Probe(t.Context(), api.Endpoint(s.URL)); !runtime.Missing(err) {
		t.Fatalf("the probe of a server without paths: %v", err)
	}
	return err
}

type hopelessError struct{}

func (*hopelessError) Error() string   { return "no such architecture" }
func (*hopelessError) Permanent() bool { return true }

// Failures of a start come with advice.
func TestFailedStartsAdvise(t *testing.T) {
	for name, tt := range map[string]struct {
		w      *world
		output string
		status string
		once   bool // it is not tried again
		want   []string
	}{
		"exits":      {w: &world{}, status: "exit status 2", output: "unknown option", want: []string{"exit status 2", "its options", "unknown option"}},
		"port taken": {w: &world{}, status: "exit status 1", output: "[Errno 98] Address already in use", want: []string{"$(PORT)", "Errno 98"}},
		"background": {w: &world{}, status: "exit status 0", want: []string{"not in the background"}},
		"bad model":  {w: &world{}, status: "exit status 65", output: "model.gguf is cut off", once: true, want: []string{"mend the file", "cut off"}},
		"no architecture": {w: &world{}, status: "exit status 1", once: true,
			output: "ValueError: Model architectures ['MambaForCausalLM'] are not supported for now. Supported architectures: dict_keys(...)" + strings.Repeat("\nRuntimeError: Engine core initialization failed. See root cause above.", 9),
			want:   []string{"another start ends the same way, for it says: ValueError: Model architectures ['MambaForCausalLM'] are not supported"}},
		"no such option": {w: &world{}, status: "exit status 2", output: "vllm: error: unrecognized arguments: --max-model-length 9", once: true, want: []string{"--max-model-length"}},
		"not found":      {w: &world{}, status: "exit status 127", once: true, want: []string{"a shell did not find the program"}},
		"no memory":      {w: &world{}, status: "signal: killed", want: []string{"memory"}},
		"no program":     {w: &world{startErr: fmt.Errorf("start srv: %w", fs.ErrNotExist)}, once: true, want: []string{"start srv", "set the runtime's command"}},
		"no right":       {w: &world{startErr: fmt.Errorf("start srv: %w", fs.ErrPermission)}, once: true, want: []string{"may be executed"}},
		"says so":        {w: &world{load: time.Millisecond, probeErr: &hopelessError{}}, once: true, want: []string{"no such architecture"}},
		"says so in its log": {w: &world{load: time.Millisecond, probeErr: &hopelessError{}}, once: true,
			output: "llama_model_load: error loading model: unknown model architecture: 'x'" + strings.Repeat("\nllama_model_load_from_file_impl: failed to load model", 9),
			want:   []string{"no such architecture; it says: llama_model_load: error loading model: unknown model architecture: 'x'"}},
		"never a path":   {w: &world{probeErr: missing(t, http.StatusNotFound)}, once: true, want: []string{"limit of 10m0s", "/v1/completions answers 404", "the runtime http"}},
		"never a method": {w: &world{probeErr: missing(t, http.StatusNotImplemented)}, once: true, want: []string{"/v1/completions answers 501", "the runtime http"}},
		"never ready": {
			w: &world{probeErr: errors.New("/v1/completions answers 503: still loading")}, output: "loading shard 1 of 4",
			want: []string{"limit of 10m0s", "raise the start timeout", "answers 503", "loading shard"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, tt.w, func(t *testing.T, s *supervise.Supervisor) {
				err := wake(s, 1)
				wantCode(t, "wake", err, api.CodeStartFailed)
				if n := len(tt.w.children); tt.once && n > 1 || !s.Status().GaveUp {
					t.Errorf("it was started %d times, given up: %v; want once, and given up: %v", n, s.Status().GaveUp, err)
				}
				for _, want := range tt.want {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("error %v, want %q in it", err, want)
					}
				}
			}, func(c *supervise.Config) {
				c.Start = func(spec process.Spec) (supervise.Child, error) {
					child, err := tt.w.start(process.Spec{Lines: func([]byte) {}})
					if err != nil {
						return nil, err
					}
					for line := range strings.Lines(tt.output) {
						spec.Lines([]byte(strings.TrimSuffix(line, "\n")))
					}
					if tt.status != "" {
						time.Sleep(time.Millisecond)
						tt.w.children[len(tt.w.children)-1].end(tt.status)
					}
					return child, nil
				}
			})
		})
	}
}
