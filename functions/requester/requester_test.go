package requester

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
)

const token = "Bearer secret"

// newStub returns a requester of two GPUs whose log goes to the buffer.
func newStub(usage map[api.DeviceID]api.Bytes, failure error) (*Requester, *bytes.Buffer) {
	var log bytes.Buffer
	return New(Config{
		Devices: []api.DeviceID{"GPU-1", "GPU-2"}, Output: &log,
		Authorize: func(r *http.Request) error {
			if r.Header.Get("Authorization") != token {
				return api.Errorf(http.StatusUnauthorized, "", "no")
			}
			return nil
		},
		Usage: func(context.Context) (map[api.DeviceID]api.Bytes, error) { return usage, failure },
	}), &log
}

func ask(h http.Handler, method, path, auth, body string) (int, string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", auth)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestInterface(t *testing.T) {
	r, log := newStub(map[api.DeviceID]api.Bytes{"GPU-1": 5, "GPU-9": 7}, nil)
	for _, step := range []struct {
		method, path, body string
		status             int
		answer             string // "": any
	}{
		{"GET", PathReady, "", 503, ""},
		{"GET", "/healthz", "", 200, ""},
		{"GET", PathAccelerators, "", 200, `["GPU-1","GPU-2"]`},
		{"GET", PathMemoryUsage, "", 200, `{"GPU-1":5,"GPU-2":0}`},
		{"POST", PathAccelerators, "", 405, ""},
		{"POST", PathBecomeReady, "", 200, ""},
		{"GET", PathReady, "", 200, ""},
		{"GET", "/readyz", "", 200, ""},
		{"POST", PathUnready, "", 200, ""},
		{"GET", PathReady, "", 503, ""},
		{"POST", PathSetLog + "?startPos=0", "one ", 200, ""},
		{"POST", PathSetLog + "?startPos=0", "one two", 200, ""}, // an overlap
		{"POST", PathSetLog + "?startPos=3", " two", 200, ""},    // again
		{"POST", PathSetLog + "?startPos=99", "x", 400, ""},      // a gap
		{"POST", PathSetLog + "?startPos=-1", "x", 400, ""},
		{"POST", PathSetLog, "x", 400, ""},
		{"POST", PathSetLog + "?startPos=0", strings.Repeat("x", maxLog+1), 400, ""},
		{"GET", PathProxy, "", 200, `{"address":"","port":0}`},
		{"PUT", PathProxy, `{"address":"evil.example","port":80}`, 400, ""},
		{"PUT", PathProxy, `{"address":"10.0.0.1","port":0}`, 400, ""},
		{"PUT", PathProxy, `{`, 400, ""},
		{"DELETE", PathProxy, "", 405, ""},
		{"POST", "/v1/completions", "", 503, ""}, // there is no provider
	} {
		status, body := ask(r, step.method, step.path, token, step.body)
		if status != step.status || step.answer != "" && body != step.answer {
			t.Errorf("%s %s: got %d %s, want %d %s", step.method, step.path, status, body, step.status, step.answer)
		}
	}
	if got := log.String(); got != "one two" {
		t.Errorf("the log is %q, want each byte once", got)
	}
}

func TestOnlyTheControlPlaneIsObeyed(t *testing.T) {
	r, _ := newStub(nil, nil)
	for path, method := range map[string]string{PathAccelerators: "GET", PathMemoryUsage: "GET", PathBecomeReady: "POST", PathUnready: "POST",
		PathSetLog + "?startPos=0": "POST", PathProxy: "PUT", PathRelease: "POST"} {
		if status, _ := ask(r, method, path, "Bearer other", "{}"); status != 401 {
			t.Errorf("%s %s with another token: got %d, want 401", method, path, status)
		}
	}
	if r.Ready() {
		t.Error("it became ready all the same")
	}
}

func TestUsageThatFails(t *testing.T) {
	r, _ := newStub(nil, errors.New("no driver"))
	if status, body := ask(r, "GET", PathMemoryUsage, token, ""); status != 503 || !strings.Contains(body, "no driver") {
		t.Errorf("got %d %s", status, body)
	}
}

func TestOtherRequestsGoToTheProvider(t *testing.T) {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Method + " " + r.URL.Path + " for " + r.Host))
	}))
	defer provider.Close()
	at, _ := url.Parse(provider.URL)
	port, _ := strconv.Atoi(at.Port())
	r, _ := newStub(nil, nil)
	config, err := json.Marshal(Proxy{at.Hostname(), port})
	if err != nil {
		t.Fatal(err)
	}
	if status, body := ask(r, "PUT", PathProxy, token, string(config)); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := ask(r, "POST", "/v1/completions", "", ""); status != 200 || body != "POST /v1/completions for example.com" {
		t.Errorf("got %d %s", status, body)
	}
	if status, _ := ask(r, "PUT", PathProxy, token, "{}"); status != 200 {
		t.Error("it can't be taken back")
	}
	if status, _ := ask(r, "GET", "/v1/models", "", ""); status != 503 {
		t.Errorf("after that it answers %d, want 503", status)
	}
	if _, body := ask(r, "POST", "/v1/messages", "", "{}"); !strings.HasPrefix(body, `{"type":"error","error":{"type":"overloaded_error"`) {
		t.Errorf("an error at Anthropic's path is %s", body)
	}
}

// ends returns a function that reports whether Run has returned.
func ends(r *Requester, ctx context.Context, kill <-chan struct{}) func() bool {
	done := make(chan struct{})
	go func() { r.Run(ctx, kill); close(done) }()
	return func() bool {
		synctest.Wait()
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

func TestAClaimIsHeldUntilItMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newStub(nil, nil)
		ctx, end := context.WithCancel(t.Context())
		kill := make(chan struct{})
		ended := ends(r, ctx, kill)
		ask(r, "POST", PathBecomeReady, token, "")
		if end(); ended() {
			t.Fatal("it ended while a provider serves by its claim")
		}
		if ask(r, "POST", PathRelease, token, ""); !ended() || r.Ready() {
			t.Error("it is released and does not end")
		}

		idle, _ := newStub(nil, nil)
		if ended := ends(idle, ctx, kill); !ended() {
			t.Error("one that claims for nobody does not end")
		}

		killed, _ := newStub(nil, nil)
		killed.become(true)
		ended = ends(killed, ctx, kill)
		if close(kill); !ended() {
			t.Error("one that is killed does not end")
		}
	})
}

func TestUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "used.json")
	t.Setenv(EnvUsage, file)
	if _, err := Usage(t.Context()); err == nil || !strings.Contains(err.Error(), EnvUsage) {
		t.Errorf("no file: got %v", err)
	}
	if err := os.WriteFile(file, []byte(`{"GPU-1": 12}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if used, err := Usage(t.Context()); err != nil || used["GPU-1"] != 12 {
		t.Errorf("got %v, %v", used, err)
	}
	used, err := parse([]byte("GPU-1, 512\nGPU-2, 0\n\n"))
	if diff := cmp.Diff(map[api.DeviceID]api.Bytes{"GPU-1": 512 * api.MiB, "GPU-2": 0}, used); err != nil || diff != "" {
		t.Errorf("nvidia-smi: %v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"GPU-1", "GPU-1, many", "GPU-1, -5", "GPU-1, 9223372036854775807"} {
		if _, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
