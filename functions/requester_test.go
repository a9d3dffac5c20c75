package functions

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

const planeToken = "Bearer secret"

// testRequester returns a requester of two GPUs whose log goes to the buffer.
func testRequester(usage map[api.DeviceID]api.Bytes, failure error) (*requester, *bytes.Buffer) {
	var log bytes.Buffer
	return newRequester(requesterConfig{
		Devices: []api.DeviceID{"GPU-1", "GPU-2"}, Output: &log,
		Authorize: func(r *http.Request) error {
			if r.Header.Get("Authorization") != planeToken {
				return api.Errorf(http.StatusUnauthorized, "", "no")
			}
			return nil
		},
		Usage: func(context.Context) (map[api.DeviceID]api.Bytes, error) { return usage, failure },
	}), &log
}

func askRequester(h http.Handler, method, path, auth, body string) (int, string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", auth)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestRequester(t *testing.T) {
	r, log := testRequester(map[api.DeviceID]api.Bytes{"GPU-1": 5, "GPU-9": 7}, nil)
	for _, step := range []struct {
		method, path, body string
		status             int
		answer             string // "": any
	}{
		{"GET", pathReady, "", 503, ""},
		{"GET", "/healthz", "", 200, ""},
		{"GET", pathAccelerators, "", 200, `["GPU-1","GPU-2"]`},
		{"GET", pathMemoryUsage, "", 200, `{"GPU-1":5,"GPU-2":0}`},
		{"POST", pathAccelerators, "", 405, ""},
		{"POST", pathBecomeReady, "", 200, ""},
		{"GET", pathReady, "", 200, ""},
		{"GET", "/readyz", "", 200, ""},
		{"POST", pathUnready, "", 200, ""},
		{"GET", pathReady, "", 503, ""},
		{"POST", pathSetLog + "?startPos=0", "one ", 200, ""},
		{"POST", pathSetLog + "?startPos=0", "one two", 200, ""}, // an overlap
		{"POST", pathSetLog + "?startPos=3", " two", 200, ""},    // again
		{"POST", pathSetLog + "?startPos=99", "x", 400, ""},      // a gap
		{"POST", pathSetLog + "?startPos=-1", "x", 400, ""},
		{"POST", pathSetLog, "x", 400, ""},
		{"POST", pathSetLog + "?startPos=0", strings.Repeat("x", maxPiece+1), 400, ""},
		{"GET", pathProxy, "", 200, `{"address":"","port":0}`},
		{"PUT", pathProxy, `{"address":"evil.example","port":80}`, 400, ""},
		{"PUT", pathProxy, `{"address":"10.0.0.1","port":0}`, 400, ""},
		{"PUT", pathProxy, `{`, 400, ""},
		{"DELETE", pathProxy, "", 405, ""},
		{"POST", "/v1/completions", "", 503, ""}, // there is no provider
	} {
		status, body := askRequester(r, step.method, step.path, planeToken, step.body)
		if status != step.status || step.answer != "" && body != step.answer {
			t.Errorf("%s %s: got %d %s, want %d %s", step.method, step.path, status, body, step.status, step.answer)
		}
	}
	if got := log.String(); got != "one two" {
		t.Errorf("the log is %q, want each byte once", got)
	}
}

func TestRequesterObeysTheControlPlane(t *testing.T) {
	r, _ := testRequester(nil, nil)
	for path, method := range map[string]string{pathAccelerators: "GET", pathMemoryUsage: "GET", pathBecomeReady: "POST", pathUnready: "POST",
		pathSetLog + "?startPos=0": "POST", pathProxy: "PUT", pathRelease: "POST"} {
		if status, _ := askRequester(r, method, path, "Bearer other", "{}"); status != 401 {
			t.Errorf("%s %s with another token: got %d, want 401", method, path, status)
		}
	}
	if r.Ready() {
		t.Error("it became ready all the same")
	}
}

func TestUsageThatFails(t *testing.T) {
	r, _ := testRequester(nil, errors.New("no driver"))
	if status, body := askRequester(r, "GET", pathMemoryUsage, planeToken, ""); status != 503 || !strings.Contains(body, "no driver") {
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
	r, _ := testRequester(nil, nil)
	config, err := json.Marshal(providerAddress{at.Hostname(), port})
	if err != nil {
		t.Fatal(err)
	}
	if status, body := askRequester(r, "PUT", pathProxy, planeToken, string(config)); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := askRequester(r, "POST", "/v1/completions", "", ""); status != 200 || body != "POST /v1/completions for example.com" {
		t.Errorf("got %d %s", status, body)
	}
	if status, _ := askRequester(r, "PUT", pathProxy, planeToken, "{}"); status != 200 {
		t.Error("it can't be taken back")
	}
	if status, _ := askRequester(r, "GET", "/v1/models", "", ""); status != 503 {
		t.Errorf("after that it answers %d, want 503", status)
	}
	if _, body := askRequester(r, "POST", "/v1/messages", "", "{}"); !strings.HasPrefix(body, `{"type":"error","error":{"type":"overloaded_error"`) {
		t.Errorf("an error at Anthropic's path is %s", body)
	}
}

// runRequester returns a function that reports whether Run has returned.
func runRequester(r *requester, ctx context.Context, kill <-chan struct{}) func() bool {
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
		r, _ := testRequester(nil, nil)
		ctx, end := context.WithCancel(t.Context())
		kill := make(chan struct{})
		ended := runRequester(r, ctx, kill)
		askRequester(r, "POST", pathBecomeReady, planeToken, "")
		if end(); ended() {
			t.Fatal("it ended while a provider serves by its claim")
		}
		if askRequester(r, "POST", pathRelease, planeToken, ""); !ended() || r.Ready() {
			t.Error("it is released and does not end")
		}

		idle, _ := testRequester(nil, nil)
		if ended := runRequester(idle, ctx, kill); !ended() {
			t.Error("one that claims for nobody does not end")
		}

		killed, _ := testRequester(nil, nil)
		killed.become(true)
		ended = runRequester(killed, ctx, kill)
		if close(kill); !ended() {
			t.Error("one that is killed does not end")
		}
	})
}

func TestGPUUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "used.json")
	t.Setenv(envUsage, file)
	if _, err := gpuUsage(t.Context()); err == nil || !strings.Contains(err.Error(), envUsage) {
		t.Errorf("no file: got %v", err)
	}
	if err := os.WriteFile(file, []byte(`{"GPU-1": 12}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if used, err := gpuUsage(t.Context()); err != nil || used["GPU-1"] != 12 {
		t.Errorf("got %v, %v", used, err)
	}
	used, err := parseUsage([]byte("GPU-1, 512\nGPU-2, 0\n\n"))
	if diff := cmp.Diff(map[api.DeviceID]api.Bytes{"GPU-1": 512 * api.MiB, "GPU-2": 0}, used); err != nil || diff != "" {
		t.Errorf("nvidia-smi: %v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"GPU-1", "GPU-1, many", "GPU-1, -5", "GPU-1, 9223372036854775807"} {
		if _, err := parseUsage([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
