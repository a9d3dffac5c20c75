package page_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/pico"
)

// TestInABrowser: every view in a real Chromium, against a real server, and axe finds no serious fault. PAGE_SHOTS is a folder
// for screenshots.
func TestInABrowser(t *testing.T) {
	script(t, "test/browser.mjs", os.Getenv("PAGE_SHOTS"))
}

// TestSite: the documentation's pages in a real Chromium. PAGE_SHOTS is a folder for screenshots.
func TestSite(t *testing.T) {
	chromium, site := browserFor(t), t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "run", "./site", "../..", site)
	build.Dir = "../../../internal/release"
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	node(t, "test/site.mjs", chromium, site, os.Getenv("PAGE_SHOTS"))
}

// TestBench measures the page, and writes what it finds to the file PAGE_BENCH; see make bench-page. Nothing is asserted of it.
func TestBench(t *testing.T) {
	report := os.Getenv("PAGE_BENCH")
	if report == "" {
		t.Skip("PAGE_BENCH names no file for the report: make bench-page")
	}
	script(t, "test/bench.mjs", report, "make bench-page")
}

// script runs a program of Node.js against a server of its own. Its arguments are a Chromium, the page's address with its token, the
// server's process, and more.
func script(t *testing.T, program string, more ...string) {
	t.Helper()
	chromium := browserFor(t)
	address, pid, _ := serve(t)
	node(t, append([]string{program, chromium, address, pid}, more...)...)
}

// node runs a program of Node.js.
func node(t *testing.T, args ...string) {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "node", args...).CombinedOutput()
	t.Logf("%s", said)
	if err != nil {
		t.Error(err)
	}
}

// browserFor returns a Chromium for programs in test; it skips the test if there is none, or no driver.
func browserFor(t *testing.T) string {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium: apt-get install chromium")
	}
	if _, err := os.Stat("node_modules/playwright-core"); err != nil {
		t.Skip("playwright-core is not installed: make page")
	}
	return chromium
}

// hub runs a hub with one model, which is pico, and an Ollama registry that has one of the same name. It sends half of the model, slowly,
// and the rest once it was asked for /go. Programs in test find it by PAGE_HUB.
func hub(t *testing.T) string {
	model, released := pico.GGUF(), make(chan struct{}) // closed by release
	sum, release := sha256.Sum256(model), sync.OnceFunc(func() { close(released) })
	digest, file := hex.EncodeToString(sum[:]), "tiny-Q8_0.gguf"
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) }
	}
	type object = map[string]any
	mux := http.NewServeMux()
	mux.HandleFunc("GET /go", func(http.ResponseWriter, *http.Request) { release() })
	mux.Handle("GET /api/models", answer([]object{
		{"id": "acme/tiny-GGUF", "downloads": 1234, "gated": false, "siblings": []object{{"rfilename": "tiny-Q4_K_M.gguf"}, {"rfilename": file}}},
		{"id": "acme/tiny-instruct-with-a-name-that-is-rather-long-GGUF", "downloads": 56, "gated": "manual", "siblings": []object{{"rfilename": "x-F16.gguf"}}},
	}))
	mux.Handle("GET /api/models/acme/tiny-GGUF/revision/main", answer(object{"sha": strings.Repeat("c0ffee00", 5), "siblings": []object{
		{"rfilename": file, "size": len(model), "lfs": object{"sha256": digest, "size": len(model)}},
	}}))
	mux.Handle("GET /v2/library/tiny/manifests/latest", answer(object{"config": object{"digest": "sha256:" + strings.Repeat("1", 64), "size": 400}, "layers": []object{{"digest": "sha256:" + digest, "size": 523 << 20}}}))
	mux.HandleFunc("GET /acme/tiny-GGUF/resolve/{sha}/"+file, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(model)))
		left, piece := model, len(model)/5
		for pause := time.NewTicker(50 * time.Millisecond); ; { // a slow network
			_, _ = w.Write(left[:piece]) // the reader may leave
			_ = http.NewResponseController(w).Flush()
			left = left[piece:]
			if piece = 8 << 10; len(left) < len(model)/2 {
				piece = 1
			}
			select {
			case <-pause.C:
			case <-released:
				_, _ = w.Write(left)
				return
			case <-r.Context().Done():
				return
			}
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Cleanup(release)
	t.Setenv("PAGE_HUB", s.URL)
	return s.URL
}

// serve runs a server with simulated GPUs, two models that take turns on one of them, and pico. Clients need no key, but may have one.
// rouse, with the environment that it returns, finds the server.
func serve(t *testing.T) (address, pid string, rouse *exec.Cmd) {
	t.Helper()
	dir, err := os.MkdirTemp("", "rouse-page-") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin := filepath.Join(dir, "bin") // the server has a folder rouse
	program := filepath.Join(bin, "rouse")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", bin, "../../rouse", "../../../e2e/vllmsim/cmd/vllmsim").CombinedOutput(); err != nil {
		t.Fatalf("build rouse and the simulator: %v\n%s", err, out)
	}
	for _, name := range []string{"vllm", "nvidia-smi"} {
		if err := os.Symlink("vllmsim", filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	env := append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "ROUSE_SERVER=", "PATH="+bin+":"+os.Getenv("PATH"), "VLLMSIM_DEVICES="+filepath.Join(dir, "devices"),
		"VLLMSIM_FLAGS=--load-time 200ms --sleep-time 0 --wake-time 0 --step-time 1ms --prefill-time 1us")
	models, keys := hub(t), filepath.Join(dir, "keys.yaml")
	env = append(env, "HF_ENDPOINT="+models, "HF_TOKEN=", "OLLAMA_REGISTRY="+models, "ROUSE_CACHE="+filepath.Join(dir, "models"))
	if err := os.WriteFile(keys, []byte("keys:\n- name: anonymous\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gpu := exec.Command(filepath.Join(bin, "vllmsim"), "devices", "--count", "1", "--memory", "80GiB")
	if gpu.Env = env; gpu.Run() != nil {
		t.Fatal("the simulator makes no GPU")
	}
	server := exec.Command(program, "up", "--no-gpu=false", "-f", "test/functions.yaml", "--keys", keys, "--listen", "127.0.0.1:0", "--log-format", "text")
	server.Env = env
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "page:") {
	}
	if strings.Contains(lines.Text(), "token") {
		t.Error("the token is printed where there is no terminal")
	}
	go func() { // ends with the server; what it prints must not fill the pipe
		for lines.Scan() {
		}
	}()
	ui := exec.Command(program, "ui")
	ui.Env = env
	printed, err := ui.Output()
	if err != nil {
		t.Fatalf("rouse ui: %v", err)
	}
	return strings.TrimSpace(string(printed)), strconv.Itoa(server.Process.Pid), &exec.Cmd{Path: program, Env: env}
}
