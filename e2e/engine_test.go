package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// engineServer is a running `rouse engine serve`: the engine without the parts
// that route to it and put it to sleep.
type engineServer struct {
	place  *place
	url    string
	cmd    *exec.Cmd
	stderr *os.File
	ended  chan struct{} // closed when it has ended
	killed bool          // by its test
}

// newEngine starts an engine for a test, in a place of its own; it ends with the test, politely.
func newEngine(t *testing.T, args ...string) *engineServer {
	t.Helper()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p.engine(t, args...)
}

// engine starts an engine in a place. Arguments NAME=VALUE in front belong to its environment.
func (p *place) engine(t *testing.T, args ...string) *engineServer {
	t.Helper()
	env := append(os.Environ(), p.env()...)
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		env, args = append(env, args[0]), args[1:]
	}
	stderr, err := os.CreateTemp(p.dir, "engine-*.log")
	if err != nil {
		t.Fatal(err)
	}
	e := &engineServer{place: p, stderr: stderr, ended: make(chan struct{})}
	e.cmd = exec.Command(filepath.Join(bin, "rouse"), append([]string{"engine", "serve"}, args...)...)
	e.cmd.Dir, e.cmd.Env, e.cmd.Stderr = p.dir, env, stderr
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.stop(t) })
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() { // ends with the process, which stop ends
		_ = e.cmd.Wait() // stop looks at the state
		close(e.ended)
	}()
	if err != nil {
		<-e.ended
		t.Fatalf("rouse engine serve %s: no announcement:\n%s", strings.Join(args, " "), e.log())
	}
	e.url = strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	return e
}

// stop ends the engine as a service manager does, and looks at how it ended. Twice is fine.
func (e *engineServer) stop(t *testing.T) {
	t.Helper()
	_ = e.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	<-e.ended
	log := e.log()
	if code := e.cmd.ProcessState.ExitCode(); code != 0 && !e.killed {
		t.Errorf("the engine ended with status %d:\n%s", code, log)
	} else if t.Failed() {
		t.Logf("the engine printed:\n%s", log)
	}
	for _, bad := range []string{"panic: ", "DATA RACE", "fatal error: ", "goroutine 1 ["} {
		if strings.Contains(log, bad) {
			t.Errorf("the engine printed %q:\n%s", bad, log)
		}
	}
}

func (e *engineServer) log() string {
	all, err := io.ReadAll(io.NewSectionReader(e.stderr, 0, 1<<30))
	if err != nil {
		return err.Error()
	}
	return string(all)
}

// post sends a JSON body and returns status and body of the answer.
func (e *engineServer) post(ctx context.Context, path, body string) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, raw, err
}

// stream asks for a streamed text completion and returns its text. seen hears of every chunk.
func (e *engineServer) stream(ctx context.Context, body string, seen func()) (text, finish string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return "", "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			if lines.Text() != "" && !strings.HasPrefix(lines.Text(), ":") {
				return text, finish, fmt.Errorf("status %d: %s", resp.StatusCode, lines.Text())
			}
			continue
		}
		if data == "[DONE]" {
			return text, finish, lines.Err()
		}
		var chunk struct {
			Choices []struct {
				Text   string
				Finish *string `json:"finish_reason"`
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || chunk.Error != nil {
			return text, finish, fmt.Errorf("chunk %s: %w", data, err)
		}
		for _, c := range chunk.Choices {
			text += c.Text
			if c.Finish != nil {
				finish = *c.Finish
			}
		}
		if seen(); ctx.Err() != nil {
			return text, finish, context.Cause(ctx) // before the transport notices
		}
	}
	return text, finish, errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}

// metric is a number of the engine, by its name without labels.
func (e *engineServer) metric(name string) (float64, error) {
	resp, err := http.Get(e.url + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), "} "); ok && strings.HasPrefix(key, name+"{") {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("no metric %s: %w", name, lines.Err())
}

// becomes waits until a metric has a value.
func (e *engineServer) becomes(t *testing.T, name string, want float64) {
	t.Helper()
	err := retry(func() error {
		got, err := e.metric(name)
		if err == nil && got != want {
			err = fmt.Errorf("%s is %v, want %v", name, got, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// workers are the engine's worker processes: those with these words in their command line.
func (e *engineServer) workers(words string) ([]int, error) {
	all, err := e.place.processes()
	var pids []int
	for _, p := range all {
		if pid, line, _ := strings.Cut(p, " "); strings.Contains(line, words) {
			n, _ := strconv.Atoi(pid)
			pids = append(pids, n)
		}
	}
	return pids, err
}

// question is a chat request as JSON, with more members.
func question(model, prompt, more string) string {
	said, _ := json.Marshal(prompt) // a string always can be
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%s}]%s}`, model, said, more)
}

// answerOf is the text of a chat completion's first choice.
func answerOf(raw []byte) (string, error) {
	var a struct {
		Choices []struct{ Message struct{ Content string } }
		Error   json.RawMessage
	}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&a); err != nil {
		return "", fmt.Errorf("read %q: %w", raw, err)
	}
	if a.Error != nil || len(a.Choices) == 0 {
		return "", fmt.Errorf("no answer: %s", raw)
	}
	return a.Choices[0].Message.Content, nil
}
