package vllmsim

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

// over is a client of a socket.
func over(socket string) *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
}

const started = "Application startup complete."

func TestProcessesShareADevice(t *testing.T) {
	dir := t.TempDir()
	env := []string{"VLLMSIM_DEVICES=" + filepath.Join(dir, "gpus"), "CUDA_VISIBLE_DEVICES=0", "VLLMSIM_FLAGS=--time-scale 0 --device-memory 80GiB --weights 16GiB"}
	server := func(name string, more ...string) (*program, *http.Client) {
		socket := filepath.Join(dir, name)
		return run(t, env, append([]string{"serve", "sim/" + name + "-8b", "--uds", socket, "--enable-sleep-mode"}, more...)...), over(socket)
	}
	smi := func() string {
		var out bytes.Buffer
		device.NvidiaSMI(filepath.Join(dir, "gpus"), "", []string{"--query-gpu=memory.used", "--format=csv,noheader,nounits"}, &out, &out)
		return strings.TrimSpace(out.String())
	}
	a, toA := server("a")
	a.says(t, started)
	if got := smi(); got != "73728" { // 0.9 of 80 GiB
		t.Errorf("nvidia-smi: %s MiB, want 73728", got)
	}
	b, _ := server("b")
	if code := b.exits(t); code != 1 || !strings.Contains(b.log(), "less than desired GPU memory utilization") {
		t.Errorf("beside another: status %d\n%s", code, b.log())
	}
	if code, body := do(t, toA, http.MethodPost, "/sleep?level=1", ""); code != 200 {
		t.Fatalf("sleep: %d %s", code, body)
	}
	c, toC := server("c")
	c.says(t, started)
	if code, body := do(t, toA, http.MethodPost, "/wake_up", ""); code != 500 || !strings.Contains(body, "CUDA Error: out of memory") {
		t.Errorf("a wake beside another: %d %s", code, body)
	}
	if code, _ := do(t, toC, http.MethodPost, "/v1/completions", `{"prompt":"a","max_tokens":1}`); code != 200 {
		t.Errorf("the other one: %d", code)
	}
	_ = c.Process.Kill() // the kernel frees what it held
	c.exits(t)
	if code, body := do(t, toA, http.MethodPost, "/wake_up", ""); code != 200 {
		t.Errorf("a wake after the other was killed: %d %s", code, body)
	}
	_ = a.Process.Signal(syscall.SIGTERM)
	if code := a.exits(t); code != 0 || smi() != "0" {
		t.Errorf("after SIGTERM: status %d, %s MiB used\n%s", code, smi(), a.log())
	}
}

func TestStartsThatFail(t *testing.T) {
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	for i, tt := range []struct {
		args string
		code int
		want string
	}{
		{"serve m --host 127.0.0.1 --port " + port, 1, "Address already in use"},
		{"serve m --fault earthquake", 2, "earthquake"},
		{"serve m --max-model-len 0 --max-num-seqs -1", 2, "--max-num-seqs"},
		{"serve m --max-model-len x", 2, "--max-model-len x"},
		{"serve m --weights 16parsecs", 2, "is no size"},
		{"serve m --port", 2, "--port: expected a value"},
		{"serve m --surface tgi", 2, "vllm, sglang"},
		{"serve", 2, "no model"},
	} {
		args := strings.Fields(tt.args)
		if !strings.Contains(tt.args, "--port ") {
			args = append(args, "--uds", filepath.Join(dir, fmt.Sprint(i)))
		}
		p := run(t, nil, args...)
		if code := p.exits(t); code != tt.code || !strings.Contains(p.log(), tt.want) {
			t.Errorf("%s: status %d, want %d and %q\n%s", tt.args, code, tt.code, tt.want, p.log())
		}
	}
}

func TestLifeOfAProcess(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	p := run(t, nil, "serve", "m", "--uds", socket, "--load-time", "1h")
	p.says(t, "vLLM API server version")
	if code, err := do(t, over(socket), http.MethodGet, "/health", ""); code != 0 || !strings.Contains(err, "refused") {
		t.Errorf("while it loads: %d %s, want a refused connection", code, err)
	}
	_ = p.Process.Signal(syscall.SIGTERM)
	if code := p.exits(t); code != 0 {
		t.Errorf("SIGTERM while it loads: status %d\n%s", code, p.log())
	}

	p = run(t, []string{"VLLMSIM_FLAGS=--step-time 20ms --load-time 0"}, "serve", "m", "--uds", socket)
	p.says(t, started)
	done := make(chan string, 1)
	go func() {
		_, body := do(t, over(socket), http.MethodPost, "/v1/completions", `{"prompt":"a","max_tokens":10,"ignore_eos":true}`)
		done <- body
	}()
	for {
		if _, body := do(t, over(socket), http.MethodGet, "/metrics", ""); strings.Contains(body, `vllm:num_requests_running{engine="0",model_name="m"} 1`) {
			break
		}
	}
	_ = p.Process.Signal(syscall.SIGTERM)
	if body := <-done; !strings.Contains(body, `"length"`) {
		t.Errorf("what ran when SIGTERM came: %s", body)
	}
	if code := p.exits(t); code != 0 {
		t.Errorf("SIGTERM: status %d\n%s", code, p.log())
	}

	p = run(t, []string{"VLLMSIM_FLAGS=--time-scale 0"}, "serve", "m", "--uds", socket, "--fault", "crash-after=3@1")
	p.says(t, started)
	if code, body := do(t, over(socket), http.MethodPost, "/v1/chat/completions", streamHi); code != 200 || !strings.Contains(body, "DONE") {
		t.Errorf("the first request: %d %s", code, body)
	}
	do(t, over(socket), http.MethodPost, "/v1/chat/completions", streamHi)
	if code := p.exits(t); code != -1 || p.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("crash-after: %s, want SIGKILL", p.ProcessState)
	}
}

func TestDevicesCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gpus")
	var out bytes.Buffer
	t.Setenv("VLLMSIM_DEVICES", dir)
	if code := Main([]string{"vllmsim", "devices", "--count", "2", "--memory", "24GiB"}, &out, &out); code != 0 || strings.Count(out.String(), "24.00 GiB, 0.00 GiB used by 0") != 2 {
		t.Errorf("status %d\n%s", code, out.String())
	}
	out.Reset()
	if code := Main([]string{"/somewhere/nvidia-smi", "--query-gpu=uuid,name,memory.total,memory.used", "--format=csv,noheader,nounits"}, &out, &out); code != 0 || strings.Count(out.String(), ", Simulated GPU, 24576, 0\n") != 2 {
		t.Errorf("status %d\n%s", code, out.String())
	}
	if code := Main([]string{"vllmsim", "devices", "--memory", "x"}, &out, &out); code == 0 {
		t.Error("a memory of x is accepted")
	}
}
