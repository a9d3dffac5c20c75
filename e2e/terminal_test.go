package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
)

// terminal is a program on a terminal of its own, 80 columns wide.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	keys   *os.File
	ended  chan struct{} // closed when all that it prints was read
	mu     sync.Mutex
	screen bytes.Buffer // guarded by mu
	seen   int          // what was waited for already
}

// onTerminal starts rouse.
func (p *place) onTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	s := &terminal{t: t, cmd: exec.Command(filepath.Join(bin, "rouse"), args...), ended: make(chan struct{})}
	s.cmd.Dir = p.dir
	s.cmd.Env = append(append(append(os.Environ(), p.env()...), "TERM=xterm", "NO_COLOR="), env...)
	var err error
	if s.keys, err = pty.StartWithSize(s.cmd, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Skipf("no pseudo terminal: %v", err)
	}
	go func() {
		defer close(s.ended)
		buf := make([]byte, 4096)
		for {
			n, err := s.keys.Read(buf)
			s.mu.Lock()
			s.screen.Write(buf[:n])
			s.mu.Unlock()
			if err != nil { // the program has ended
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.ended
		_ = s.keys.Close()
	})
	return s
}

// wants waits until the screen has something new that matches.
func (s *terminal) wants(pattern string) {
	s.t.Helper()
	want := regexp.MustCompile(pattern)
	if err := retry(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		text := s.screen.Bytes()[s.seen:]
		at := want.FindIndex(text)
		if at == nil {
			return fmt.Errorf("the screen lacks %q: %q", pattern, text)
		}
		s.seen += at[1]
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *terminal) types(keys string) {
	s.t.Helper()
	if _, err := s.keys.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// ends waits for the end, and returns the status and all that was printed.
func (s *terminal) ends() (int, string) {
	<-s.ended
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode(), s.screen.String()
}

// TestTerminal is rouse as a person sees it.
func TestTerminal(t *testing.T) {
	t.Parallel()
	slow := filepath.Join(t.TempDir(), "slow.yaml") // whose answer takes a second a token
	if err := os.WriteFile(slow, []byte(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: slow}
spec:
  template:
    metadata: {annotations: {rouse.dev/runtime: vllm, rouse.dev/model: sim/tiny-1b}}
    spec: {containers: [{image: vllm/vllm-openai, env: [{name: VLLMSIM_FLAGS, value: --step-time=1s --load-time=0}]}]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newServer(t, "-f", slow, "--model", "deepseek-r1-distill-qwen-1-5b-q4-k-m-of-somebody="+absolute(t, "../engine/pico/pico-q8_0.gguf"), "--model", "pico")
	p.extra = append(p.extra, "ROUSE_SERVER="+p.server.admin)
	t.Run("ls", func(t *testing.T) { testTerminalList(t, p) })
	t.Run("conversation", func(t *testing.T) { testTerminalConversation(t, p) })
	t.Run("pull", func(t *testing.T) { testTerminalPull(t, p) })
}

func testTerminalList(t *testing.T, p *place) {
	_, out := p.onTerminal(t, nil, "ls").ends()
	plain := regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(out, "")
	for line := range strings.Lines(plain) {
		if n := len([]rune(strings.TrimRight(line, "\r\n"))); n > 80 {
			t.Errorf("a line has %d columns: %q", n, line)
		}
	}
	if !strings.Contains(out, "\x1b[2munloaded\x1b[0m") {
		t.Errorf("an unloaded function has no colour: %q", out)
	}
	if _, out := p.onTerminal(t, []string{"NO_COLOR=1"}, "ls").ends(); strings.Contains(out, "\x1b") {
		t.Errorf("with NO_COLOR it prints %q", out)
	}
}

func testTerminalConversation(t *testing.T, p *place) {
	s := p.onTerminal(t, nil, "run", "pico")
	s.wants("> ")
	s.types("echo red\x1b[D\x1b[D\x1b[Dblue \r") // three to the left
	s.wants("blue red")
	s.wants(`first token`)
	s.types("/?\r")
	s.wants("/set NAME VALUE")
	s.types("/set max-tokens 1\r/set stats off\r")
	s.types("\x1b[A\x1b[A\x1b[A\x1b[A\r") // up to the first line
	s.wants(`2004lblue\r\n`)
	s.types("\"\"\"echo\r")
	s.wants("… ")
	s.types("\x03") // takes the lines back
	s.wants("> ")
	s.types("/bye\r")
	if status, out := s.ends(); status != 0 {
		t.Errorf("it ends with %d: %q", status, out)
	}
	if raw, err := os.ReadFile(filepath.Join(p.runtime, ".local/state/rouse/history")); err != nil || !strings.Contains(string(raw), "echo blue red\n") {
		t.Errorf("the history is %q, %v", raw, err)
	}
	for keys, want := range map[string]int{"\x04": 0, "\x03": 0} {
		s = p.onTerminal(t, []string{"ROUSE_NO_HISTORY=1"}, "run", "pico")
		s.wants("> ")
		s.types(keys)
		if status, out := s.ends(); status != want {
			t.Errorf("%q ends it with %d, want %d: %q", keys, status, want, out)
		}
	}
	// Ctrl-C ends an answer, and the conversation goes on.
	s = p.onTerminal(t, nil, "run", "slow")
	s.wants("> ")
	s.types("go on\r")
	s.wants(`loading`)
	s.wants(`\r\w+ \w+`) // the answer, in place of the bar, a token beside the other
	s.types("\x03")
	s.wants("> ")
	s.types("\x03")
	if status, _ := s.ends(); status != 0 {
		t.Errorf("after an answer that was ended it ends with %d", status)
	}
}

// testTerminalPull: a fetch that stands still in its middle has a bar, and Ctrl-C keeps what has come.
func testTerminalPull(t *testing.T, p *place) {
	raw, err := os.ReadFile("../engine/pico/pico-q8_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	goOn := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		if r.Header.Get("Range") == "" && r.Method == http.MethodGet {
			w.Header().Set("Accept-Ranges", "bytes")
			w.Header().Set("Content-Length", fmt.Sprint(len(raw)))
			_, _ = w.Write(raw[:len(raw)/2])
			w.(http.Flusher).Flush()
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
			return
		}
		http.ServeContent(w, r, "slow.gguf", time.Time{}, bytes.NewReader(raw))
	}))
	defer web.Close()
	defer close(goOn)
	s := p.onTerminal(t, nil, "pull", web.URL+"/slow.gguf")
	s.wants(`slow.gguf .* of .*\d+% `)
	s.types("\x03")
	s.wants("what has come is kept")
	if status, out := s.ends(); status != 130 {
		t.Errorf("Ctrl-C ends it with %d: %q", status, out)
	}
	status, out := p.onTerminal(t, nil, "pull", web.URL+"/slow.gguf").ends()
	if status != 0 || !strings.Contains(out, "run it:") {
		t.Errorf("the second time it ends with %d: %q", status, out)
	}
}
