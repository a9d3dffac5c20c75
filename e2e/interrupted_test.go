package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/rhythm"
	"github.com/rouse-dev/rouse/e2e/vllmsim"
	"github.com/rouse-dev/rouse/internal/disk"
)

// moment is where a rehearsal, or a wake for a request that is foreseen, stands still until a request has come.
type moment struct {
	name string
	path string // of the call to vLLM
	done bool   // vLLM has done the call and has not answered yet
}

// askingWords marks the prompts of clients. Other generations in vLLM are canaries or probes.
const askingWords = "a client asks"

// stopping is a vLLM that stands still in one of these moments, once, when it is armed.
type stopping struct {
	http.Handler
	at      moment
	armed   atomic.Bool
	woken   atomic.Bool   // a wake was asked for since it was armed
	reached chan struct{} // closed when it stands still
	goOn    chan struct{} // closed by the test
	asked   atomic.Int64  // requests of clients
	once    sync.Once
}

func (s *stopping) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	path := r.URL.Path
	switch {
	case bytes.Contains(body, []byte(askingWords)):
		s.asked.Add(1)
		path = ""
	case strings.HasSuffix(path, "/completions") && s.woken.Load():
		path = "canary after it"
	case strings.HasSuffix(path, "/completions"):
		path = "canary before it"
	case path == "/wake_up" && s.armed.Load():
		s.woken.Store(true)
	}
	if !s.armed.Load() || path != s.at.path {
		s.Handler.ServeHTTP(w, r)
		return
	}
	if s.at.done {
		s.Handler.ServeHTTP(w, r) // the answer is short, so it is sent when the handler returns
	}
	s.once.Do(func() { close(s.reached) })
	select {
	case <-s.goOn:
	case <-r.Context().Done():
	}
	if !s.at.done {
		s.Handler.ServeHTTP(w, r)
	}
}

// newStopping serves a simulated vLLM with the name of a function at a socket.
func newStopping(t *testing.T, dir, name string, at moment) *stopping {
	t.Helper()
	sim, err := vllmsim.New(vllmsim.Config{Surface: vllmsim.VLLM, Model: "sim/tiny-1b", Names: []string{name}, Sleep: true, DevMode: true, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1) // so that it can end unread
	go func() { ended <- sim.Run(ctx) }()
	<-sim.Ready()
	s := &stopping{Handler: sim, at: at, reached: make(chan struct{}), goOn: make(chan struct{})}
	l, err := net.Listen("unix", filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); cancel(); <-ended })
	return s
}

// interrupted is a function whose rehearsal, or wake for a request that is foreseen, a request comes into.
type interrupted struct {
	name  string
	at    moment
	ahead bool // it is woken for a request that is foreseen
	vllm  *stopping
}

// all are those of [TestInterrupted].
func allInterrupted() (all []*interrupted) {
	rehearsal := []moment{{"draining", "canary before it", false}, {"sleep-asked", "/sleep", false}, {"sleeping", "/sleep", true}, {"asleep", "/wake_up", false},
		{"waking", "/wake_up", true}, {"canary", "canary after it", false}}
	for k, at := range rehearsal {
		all = append(all, &interrupted{"rehearsed-" + at.name, at, false, nil})
		if k >= 3 {
			all = append(all, &interrupted{"foreseen-" + at.name, at, true, nil})
		}
	}
	return all
}

// TestInterrupted has a request come at each step of a rehearsal, and of a wake for a request that is foreseen. Each request is
// answered as one that finds the function awake, once.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	all := allInterrupted()
	manifest, rhythms := "", map[string]any{}
	for _, f := range all {
		f.vllm = newStopping(t, p.runtime, f.name, f.at)
		keys := "rouse.dev/rehearse: always, rouse.dev/sleep-after: 20s" // it begins after an eighth of that
		if f.ahead {
			keys = "rouse.dev/sleep-after: 2s"
			rhythms["default/"+f.name] = map[string]any{"rhythm": hourly(t, time.Now().Add(20*time.Second)), "at": time.Now()}
		}
		manifest += fmt.Sprintf(`---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: %s}
spec:
  template:
    metadata:
      annotations: {rouse.dev/runtime: vllm, rouse.dev/runtime-endpoint: "unix:%s", rouse.dev/memory: 16Mi, rouse.dev/unload-after: "0", %s}
    spec: {containers: [{image: vllm/vllm-openai}]}
`, f.name, filepath.Join(p.runtime, f.name), keys)
	}
	file, state := filepath.Join(t.TempDir(), "functions.yaml"), filepath.Join(p.runtime, ".local/state/rouse")
	text, err := disk.Encode(2, rhythms)
	if err := errors.Join(err, os.WriteFile(file, []byte(manifest), 0o600), os.MkdirAll(state, 0o700), os.WriteFile(filepath.Join(state, "learned.json"), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	p.serve(t, "-f", file, "--memory", "4Gi")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	var done sync.WaitGroup
	for _, f := range all {
		done.Go(func() {
			if err := f.run(ctx, p); err != nil {
				why, _ := p.rouse("why", f.name)
				t.Errorf("%s: %v\n%s", f.name, err, why)
			}
		})
	}
	done.Wait()
}

// run sends the request, and returns an error if its result is wrong.
func (f *interrupted) run(ctx context.Context, p *place) error {
	want, err := p.says(ctx, f.name)
	if err != nil {
		return err
	}
	before := f.vllm.asked.Load()
	f.vllm.armed.Store(true)
	select {
	case <-f.vllm.reached:
	case <-ctx.Done():
		return errors.New("it never comes to where a request is to interrupt it")
	}
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := p.says(ctx, f.name)
		answered <- answer{text, err}
	}()
	err = retry(func() error { // until it exists
		if f.vllm.asked.Load() > before {
			return nil
		}
		return p.counts(f.name, 0, 1)
	})
	f.vllm.armed.Store(false)
	close(f.vllm.goOn)
	if got := <-answered; got.err != nil || got.text != want {
		err = errors.Join(err, fmt.Errorf("it is answered with %q, %w; want %q", got.text, got.err, want))
	}
	if n := f.vllm.asked.Load() - before; n != 1 {
		err = errors.Join(err, fmt.Errorf("vLLM was asked %d times for it, want once", n))
	}
	met := "a rehearsal, idle for"
	if f.ahead {
		met = "a request is foreseen at"
	}
	if why, e := p.rouse("why", f.name); e != nil || !strings.Contains(why, met) {
		err = errors.Join(err, fmt.Errorf("it does not say what the request met: want %q, %w", met, e))
	}
	return err
}

// says returns a function's answer to a client.
func (p *place) says(ctx context.Context, name string) (string, error) {
	raw, err := json.Marshal(map[string]any{"model": name, "prompt": askingWords + " for a word", "max_tokens": 12, "temperature": 0})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.server.url+"/v1/completions", bytes.NewReader(raw))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var got struct{ Choices []struct{ Text string } }
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &got)
	}
	if err != nil || resp.StatusCode != http.StatusOK || len(got.Choices) != 1 || got.Choices[0].Text == "" {
		return "", fmt.Errorf("%s: %s, %w", resp.Status, body, err)
	}
	return got.Choices[0].Text, nil
}

// hourly returns the learned state of a function that has a request each hour, the next one at next.
func hourly(t *testing.T, next time.Time) string {
	t.Helper()
	r := &rhythm.Rhythm{}
	for k := -6; k < 0; k++ {
		r.Visit(next.Add(time.Duration(k)*time.Hour), time.Hour, time.Second, 2*time.Second)
	}
	if _, known := r.Next(time.Now()); !known || !r.Trusted() {
		t.Fatal("nothing is foreseen")
	}
	return r.Text()
}
