package pyfunc_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// line is one of the lines that e2e/clients/compat.py prints.
type line struct {
	Name    string
	Status  int
	Headers map[string]string
	Text    string

	Events      int
	Done        bool
	Health      health
	Statuses    []int
	Diagnostics string
}

// compat runs the Python client against an endpoint, or skips without its httpx.
func compat(t *testing.T, url string) map[string]line {
	t.Helper()
	python := ""
	for _, p := range []string{"/usr/bin/python3", "python3"} { // the first one has Debian's packages
		if exec.Command(p, "-c", "import httpx").Run() == nil {
			python = p
			break
		}
	}
	if python == "" {
		t.Skip("no python3 with httpx: apt-get install python3-httpx")
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), python, "../../e2e/clients/compat.py", url, "tiny")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("compat.py: %v\n%s", err, stderr.String())
	}
	lines := map[string]line{}
	in := bufio.NewScanner(bytes.NewReader(out))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", in.Bytes(), err)
		}
		lines[l.Name] = l
	}
	return lines
}

// echo returns a model that refuses its first request as busy, and then echoes.
func echo() http.HandlerFunc {
	var asked atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		var q struct {
			Messages []struct{ Content string }
			Stream   bool
		}
		bad := json.Unmarshal(raw, &q)
		switch {
		case asked.Add(1) == 1:
			api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, api.CodeLoading, "not yet").WithRetryAfter(10*time.Millisecond))
		case r.URL.Path == "/v1/models":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"object": "list", "data": []}`)
		case r.URL.Path == "/v1/audio/transcriptions":
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprint(w, bytes.Contains(raw, []byte("\r\n\r\ntext\r\n")))
		case r.URL.Path == "/v1/audio/x":
			w.Header().Set("Content-Type", "audio/wav")
			_, _ = w.Write(raw)
		case r.URL.Path != "/v1/chat/completions":
			api.WriteError(w, api.Errorf(http.StatusNotFound, api.CodeUnknownPath, "no %s", r.URL.Path))
		case bad != nil:
			api.WriteError(w, api.BadRequest("messages", "messages must be a list"))
		case q.Stream:
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"a\": 1}\n\ndata: {\"a\": 2}\n\ndata: [DONE]\n\n")
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(q.Messages[0])
		}
	}
}

func TestCompatClient(t *testing.T) {
	for _, suffix := range []string{"", "/invocations"} {
		t.Run("URL"+suffix, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(newHandler(t, echo()))
			t.Cleanup(s.Close)
			checkCompat(t, compat(t, s.URL+suffix))
		})
	}
}

func checkCompat(t *testing.T, lines map[string]line) {
	for name, want := range map[string]struct {
		status int
		text   string
	}{
		"chat":           {200, `{"Content":"echo a \"quoted\" word\n\\ é😀"}`},
		"stream":         {200, "data: [DONE]\n\n"},
		"models":         {200, `{"object": "list", "data": []}`},
		"bad request":    {400, `"message":"messages must be a list"`},
		"unknown path":   {404, `"code":"unknown_path"`},
		"administration": {404, "no /sleep"},
		"form":           {200, "true"},
		"bytes":          {200, "\x00"},
		"no envelope":    {400, `"error_code":"BAD_REQUEST"`},
		"/ping":          {200, "\n"},
		"/version":       {200, "2.20.0"},
		"unified":        {200, `{"Content":"echo hi"}`},
		"unified stream": {200, "data: {\"a\": 1}\n\ndata: {\"a\": 2}\n\ndata: [DONE]\n\n"},
	} {
		if got := lines[name]; got.Status != want.status || !strings.Contains(got.Text, want.text) {
			t.Errorf("%s: %d %q, want %d %q", name, got.Status, got.Text, want.status, want.text)
		}
	}
	if got := lines["stream"]; got.Events != 2 || !got.Done || got.Headers["content-type"] != "text/event-stream" {
		t.Errorf("stream: %+v", got)
	}
	many := lines["many"]
	if many.Health.Status != "AVAILABLE" || many.Health.Engine != "vllm-engine" || !slices.Equal(many.Statuses, []int{200, 200, 200}) ||
		!strings.HasPrefix(many.Diagnostics, "Diagnostics are disabled") {
		t.Errorf("many: %+v", many)
	}
}
