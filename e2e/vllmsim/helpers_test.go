package vllmsim

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain is also the program, for tests that need processes.
func TestMain(m *testing.M) {
	if os.Getenv("VLLMSIM_TEST_PROGRAM") != "" {
		os.Exit(Main(append([]string{"vllmsim"}, os.Args[1:]...), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// start runs a server in this process until the test ends, as fast as possible
// unless the configuration says otherwise.
func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.Model == "" {
		cfg.Model = "sim/tiny-1b"
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- err
		t.Fatalf("it ended before it was ready: %v", err)
	}
	return s
}

// call sends one request to a handler, without a network.
func call(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if err := recover(); err != nil {
				w.Code = 0 // the connection was cut
			}
		}()
		h.ServeHTTP(w, r)
	}()
	return w
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	return call(h, http.MethodGet, path, "")
}
func post(h http.Handler, path, body string, header ...string) *httptest.ResponseRecorder {
	return call(h, http.MethodPost, path, body, header...)
}

// ok is a call that must answer 200.
func ok(t *testing.T, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	var body map[string]any
	_ = json.Unmarshal(w.Body.Bytes(), &body) // some have none
	return body
}

// answer generates an answer to a prompt and returns its text.
func answer(t *testing.T, h http.Handler, prompt string, more ...string) string {
	t.Helper()
	body := fmt.Sprintf(`{"temperature":0,"messages":[{"role":"user","content":%q}]%s}`, prompt, strings.Join(more, ""))
	var got struct {
		Choices []struct {
			Message struct{ Content string }
		}
	}
	w := post(h, "/v1/chat/completions", body)
	if err := json.Unmarshal(w.Body.Bytes(), &got); w.Code != http.StatusOK || err != nil || len(got.Choices) == 0 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return got.Choices[0].Message.Content
}

// program is a simulator in a process of its own.
type program struct {
	*exec.Cmd
	mu    sync.Mutex // guards lines
	lines []string
	ended chan struct{}
	read  chan struct{} // closed when its output has ended, which a child of its own may hold open
}

// run starts the program on a socket and returns at once.
func run(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{}), read: make(chan struct{})}
	p.Env = append(append(os.Environ(), "VLLMSIM_TEST_PROGRAM=1", "VLLM_SERVER_DEV_MODE=1"), env...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stderr = in
	err = p.Start()
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			p.mu.Unlock()
		}
	}()
	go func() {
		_ = p.Wait() // its status is read by the test
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
		out.Close()
		<-p.read
	})
	return p
}

// log is everything that it has said.
func (p *program) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// says waits for a line with text.
func (p *program) says(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if strings.Contains(p.log(), text) {
			return
		}
		select {
		case <-p.read:
			if !strings.Contains(p.log(), text) {
				t.Fatalf("it ended without saying %q:\n%s", text, p.log())
			}
			return
		case <-time.After(2 * time.Millisecond):
		}
	}
	t.Fatalf("it does not say %q:\n%s", text, p.log())
}

// exits waits for its end and returns the status; -1 for a signal.
func (p *program) exits(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		t.Fatalf("it does not end:\n%s", p.log())
	}
	select {
	case <-p.read:
	case <-time.After(20 * time.Second):
		t.Fatalf("its output does not end:\n%s", p.log())
	}
	return p.ProcessState.ExitCode()
}

// do sends a request to the socket of a program.
func do(t *testing.T, client *http.Client, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://sim"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(raw)
}
