package pyfunc_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/pyfunc"
)

// health is the answer to HEALTH_CHECK, decoded.
type health struct {
	Status    string `json:"status"`
	PID       int    `json:"worker_pid"`
	Engine    string `json:"engine_name"`
	Heartbeat string `json:"health_check_last_heartbeat"`
	Statuses  []struct {
		At     string `json:"datetime_utc"`
		Status string `json:"status"`
	} `json:"health_check_thread_last_50_status"`
	Note string `json:"note"`
}

// text sends one string and returns its prediction.
func text(t *testing.T, h http.Handler, input string) string {
	t.Helper()
	w := post(t.Context(), h, fmt.Sprintf(`{"inputs": [%q]}`, input))
	var body struct{ Predictions []string }
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || len(body.Predictions) != 1 {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return body.Predictions[0]
}

func TestHealthCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now api.InstanceStatus
		h := newHandler(t, untouched, func(c *pyfunc.Config) { c.Status = func() api.InstanceStatus { return now } })
		see := func(s api.InstanceStatus) {
			now = s
			h.Observe(s)
			time.Sleep(time.Minute)
		}
		check := func() (got health) {
			t.Helper()
			if err := json.Unmarshal([]byte(text(t, h, "HEALTH_CHECK please")), &got); err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := check(); got.Status != "" || got.Heartbeat != "" || got.Statuses == nil || got.PID != os.Getpid() || got.Engine != "vllm-engine" {
			t.Errorf("before anything is known: %+v", got)
		}
		see(api.InstanceStatus{Seq: 1, State: api.Starting})
		if got := check(); got.Status != "UNAVAILABLE" || got.Heartbeat != "" {
			t.Errorf("while it starts: %+v", got)
		}
		see(api.InstanceStatus{Seq: 2, State: api.Awake, PID: 7})
		see(api.InstanceStatus{Seq: 3, State: api.Awake, PID: 7}) // changes nothing
		see(api.InstanceStatus{Seq: 2, State: api.Asleep})        // out of date
		now.State = api.Awake
		if got := check(); got.Status != "AVAILABLE" || got.Heartbeat != "2000-01-01 00:04:00.000000" {
			t.Errorf("awake: %+v", got)
		}
		see(api.InstanceStatus{Seq: 4, State: api.Draining, PID: 7})
		see(api.InstanceStatus{Seq: 5, State: api.Asleep, Level: 1, PID: 7})
		see(api.InstanceStatus{Seq: 6, State: api.Unhealthy})
		see(api.InstanceStatus{Seq: 7, State: api.Starting, Restarts: 1})
		see(api.InstanceStatus{Seq: 8, State: api.Unhealthy, Restarts: 2, PID: 8})
		got := check()
		if got.Status != "UNAVAILABLE" || got.Heartbeat != "2000-01-01 00:04:00.000000" {
			t.Errorf("after it was awake: %+v", got)
		}
		see(api.InstanceStatus{Seq: 9, State: api.Awake, Restarts: 2, PID: 8})
		see(api.InstanceStatus{Seq: 10, State: api.Gone})
		var texts []string
		for _, s := range check().Statuses {
			texts = append(texts, s.Status)
		}
		want := []string{
			"Process is starting.", "Spawn Server Proc Finished.", "Process is draining.", "Process is asleep at level 1.", "Process is not running.",
			"Process is not running. Respawning.", "Health check failed after respawn. Attempt: 2", "Health check passed after respawn.", "Process does not exist.",
		}
		if diff := cmp.Diff(want, texts); diff != "" {
			t.Errorf("statuses (-want +got):\n%s", diff)
		}
		for i := range uint64(200) {
			h.Observe(api.InstanceStatus{Seq: 20 + i, State: api.Unhealthy, Restarts: int(i)})
		}
		if got := check().Statuses; len(got) != 50 || got[49].At != "2000-01-01 00:11:00.000000" {
			t.Errorf("%d statuses are kept, the last %+v", len(got), got[len(got)-1])
		}
	})
}

// untouched is a runtime that must get no request.
func untouched(http.ResponseWriter, *http.Request) { panic("the runtime was asked") }

func TestPing(t *testing.T) {
	for _, tt := range []struct {
		s      api.State
		status int
		body   string
		retry  string
	}{
		{api.Awake, 200, "\n", ""},
		{api.Gone, 404, "\n", ""},
		{api.Starting, 503, "the instance is starting", "4"},
		{api.Asleep, 503, `"code":"asleep"`, "4"},
		{api.Unhealthy, 503, `"code":"unhealthy"`, "4"},
		{api.Draining, 503, `"code":"draining"`, "4"},
	} {
		h := newHandler(t, untouched, func(c *pyfunc.Config) { c.Refusal = refusal(tt.s) })
		w := newRecorder(h, http.MethodGet, "/ping")
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) || w.Header().Get("Retry-After") != tt.retry {
			t.Errorf("%s: %d %v %s", tt.s, w.Code, w.Header(), w.Body)
		}
	}
}

// TestSlash checks that a path with a slash at its end is redirected as MLflow's server does, with its method and body.
func TestSlash(t *testing.T) {
	h := newHandler(t, untouched)
	for path, want := range map[string]string{"/ping/": "/ping", "/version/?a=%2F": "/version?a=%2F", "/serving-endpoints/a/invocations/": "/serving-endpoints/a/invocations"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if w := newRecorder(h, method, path); w.Code != http.StatusTemporaryRedirect || w.Header().Get("Location") != want {
				t.Errorf("%s %s: %d %v", method, path, w.Code, w.Header())
			}
		}
	}
}

func TestDiagnostics(t *testing.T) {
	h := newHandler(t, untouched, func(c *pyfunc.Config) {
		c.Diagnostics = true
		c.Env = []string{"HF_TOKEN=hf_verysecret", "HOST=0.0.0.0", "PATH=/bin:/hf_verysecret", "PLAIN=also hidden", "EMPTY_KEY="}
	})
	var one struct {
		Details struct {
			Command string  `json:"command"`
			Desc    string  `json:"command_desc"`
			Stdout  *string `json:"stdout"`
			Stderr  string  `json:"stderr"`
			Code    int     `json:"returncode"`
		} `json:"compute_details"`
	}
	ask := func(input string) {
		t.Helper()
		raw := text(t, h, input)
		if err := json.Unmarshal([]byte(raw), &one); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if strings.Contains(raw, "verysecret") || strings.Contains(raw, "also hidden") {
			t.Errorf("a secret is told: %s", raw)
		}
	}
	ask("COMPUTE_DIAGNOSTICS:env")
	if got, want := *one.Details.Stdout, "EMPTY_KEY=***\nHF_TOKEN=***\nHOST=0.0.0.0\nPATH=/bin:/***\nPLAIN=***"; got != want {
		t.Errorf("env is\n%s\nwant\n%s", got, want)
	}
	ask("COMPUTE_DIAGNOSTICS:cpu-count:more")
	if one.Details.Code != 0 || *one.Details.Stdout == "" {
		t.Errorf("%+v", one)
	}
	ask("COMPUTE_DIAGNOSTICS:rm -rf /")
	if d := one.Details; d.Command != "rm -rf /" || d.Stdout != nil || d.Stderr != "Command rm -rf / not found" || d.Code != -1 {
		t.Errorf("an unknown key: %+v", d)
	}
	ask("COMPUTE_DIAGNOSTICS:nvidia-smi") // it need not be installed
	if d := one.Details; (d.Code == 0) != (d.Stdout != nil && *d.Stdout != "") || d.Desc == "" {
		t.Errorf("nvidia-smi: %+v", d)
	}
}

func TestAllDiagnostics(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a dozen commands")
	}
	h := newHandler(t, untouched, func(c *pyfunc.Config) { c.Diagnostics = true })
	var all struct {
		Details []struct {
			Desc string `json:"command_desc"`
			Code int    `json:"returncode"`
		} `json:"compute_details"`
	}
	raw := text(t, h, "COMPUTE_DIAGNOSTICS")
	if err := json.Unmarshal([]byte(raw), &all); err != nil || len(all.Details) != 13 {
		t.Fatalf("%d details, %v: want 13", len(all.Details), err)
	}
	if slices.ContainsFunc(strings.Split(raw, `"`), func(s string) bool { return s == "ps aux" }) {
		t.Error("the command lines of all processes are told")
	}
}
