package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// server is a `rouse engine serve` that runs.
type server struct {
	cmd *exec.Cmd
	url string
}

func start(ctx context.Context, rouse string, args ...string) (*server, error) {
	cmd := exec.CommandContext(ctx, rouse, append([]string{"engine", "serve", "--name", "m", "--exit-with-parent"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w: run make build", rouse, err)
	}
	s := &server{cmd: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("the engine ended: %s", stderr.String())
	}
	s.url = strings.TrimPrefix(strings.TrimSpace(line), "listening on ")
	return s, nil
}

// stop ends it as a service manager does.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}

func (s *server) send(ctx context.Context, path string, body any) (*http.Response, error) {
	return s.sendWith(ctx, path, http.Header{}, body)
}

func (s *server) sendWith(ctx context.Context, path string, header http.Header, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		answer, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("%s: %s: %s", path, resp.Status, answer)
	}
	return resp, nil
}

func (s *server) post(ctx context.Context, path string) error {
	resp, err := s.send(ctx, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// ask streams eight greedy tokens after these. first is when the first one was there.
func (s *server) ask(ctx context.Context, tokens []int) (text string, first time.Duration, err error) {
	began := time.Now()
	resp, err := s.send(ctx, "/v1/completions", map[string]any{
		"model": "m", "prompt": tokens, "max_tokens": 8, "temperature": 0, "ignore_eos": true, "stream": true,
	})
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		if first == 0 {
			first = time.Since(began)
		}
		var chunk struct {
			Choices []struct{ Text string }
			Error   json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || chunk.Error != nil {
			return "", 0, fmt.Errorf("chunk %s: %w", data, err)
		}
		for _, c := range chunk.Choices {
			text += c.Text
		}
	}
	return text, first, lines.Err()
}

// digest waits until the model's file was read once, which is remembered.
func (s *server) digest(ctx context.Context, folder string) error {
	for {
		if found, err := filepath.Glob(filepath.Join(folder, "conversations", "*.digest")); err != nil || len(found) > 0 {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
