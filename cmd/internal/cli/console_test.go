package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"

	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

func report(s api.InstanceStatus) api.Event {
	s.Instance, s.Function = "pico-0001", "default/pico"
	return api.NewEvent(api.EventInstanceState, "/instance", s.Function, s)
}

// TestConsoleTellsAPerson follows an instance from its start to its end.
func TestConsoleTellsAPerson(t *testing.T) {
	var out, errs bytes.Buffer
	c := newConsole(&out, &errs, true, false, slog.LevelInfo)
	c.ready(local.Info{Version: "v1", URL: "http://127.0.0.1:8080"}, []api.Function{
		{Name: "default/pico", Model: "pico", Runtime: api.Runtime{Kind: api.RuntimeEngine, Model: "pico"}, Origin: "built in"},
		{Name: "default/mine", Model: "mine", Runtime: api.Runtime{Kind: api.RuntimeCommand, Command: []string{"serve", "--port", "$(PORT)"}}, Origin: "f.yaml"},
	}, declaredSet{})
	for _, want := range []string{"http://127.0.0.1:8080\n", "pico  engine, pico (built in)", "mine  serve --port $(PORT) (f.yaml)", `curl http://127.0.0.1:8080/v1/chat/completions -d '{"model":"pico"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the first lines lack %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	for _, s := range []api.InstanceStatus{
		{State: api.Starting, Stage: "loading"},
		{State: api.Starting, Stage: "probing"},
		{State: api.Awake, LoadTime: 21400 * time.Microsecond},
		{State: api.Draining},
		{State: api.Asleep, Level: 1, SleepTime: time.Millisecond},
		{State: api.Starting, Stage: "waking"},
		{State: api.Awake, WakeTime: 1234567, SleepTime: time.Millisecond},
		{State: api.Unhealthy, Message: "exit status 1"},
		{State: api.Gone},
	} {
		c.observe(report(s))
	}
	c.close()
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.TrimSpace(line[len("15:04:05"):]))
	}
	want := []string{"pico starts", "pico is awake after 21.4ms", "pico is asleep (level 1)", "pico is awake again after 1.2ms", "pico is unhealthy: exit status 1", "pico is unloaded"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestConsoleWarnsOfAnOpenDoor wants the warning where others can reach the server, and only there.
func TestConsoleWarnsOfAnOpenDoor(t *testing.T) {
	for address, want := range map[string]bool{"http://127.0.0.1:8080": false, "http://[::1]:8080": false, "http://[::]:8080": true, "https://127.0.0.1:8443": false, "https://192.0.2.1": true, "http://192.0.2.1:80": true} {
		for _, people := range []bool{true, false} {
			var out bytes.Buffer
			newConsole(&out, &out, people, false, slog.LevelInfo).ready(local.Info{URL: address}, []api.Function{{Name: "default/pico", Model: "pico"}}, declaredSet{})
			if got := strings.Contains(out.String(), openWarning); got != want {
				t.Errorf("%s: warns is %v, want %v:\n%s", address, got, want, out.String())
			}
		}
	}
}

// TestConsoleTellsTheCertificate wants its fingerprint, and the file in the command that is to be tried.
func TestConsoleTellsTheCertificate(t *testing.T) {
	for _, people := range []bool{true, false} {
		var out bytes.Buffer
		info := local.Info{URL: "https://127.0.0.1:8443", Certificate: "/etc/cert.pem", Fingerprint: "AB:CD"}
		newConsole(&out, &out, people, false, slog.LevelInfo).ready(info, []api.Function{{Name: "default/pico", Model: "pico"}}, declaredSet{})
		for _, want := range []string{"AB:CD", "curl https://127.0.0.1:8443/v1/chat/completions --cacert /etc/cert.pem "} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is missing in\n%s", want, out.String())
			}
		}
	}
}

func TestBarExpectsWhatTheLastStartTook(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name string
		bar  bar
		want float64
	}{
		{"nothing is known", bar{}, 0},
		{"the instance says", bar{status: api.InstanceStatus{Progress: 0.25, Since: now}, most: time.Second}, 0.25},
		{"half of the last start's time", bar{status: api.InstanceStatus{Since: now.Add(-time.Second)}, most: 2 * time.Second}, 0.5},
		{"longer than the last start", bar{status: api.InstanceStatus{Since: now.Add(-time.Minute)}, most: time.Second}, 0.99},
	} {
		if got := tt.bar.share(now); got != tt.want {
			t.Errorf("%s: share %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestConsoleTellsAProgram(t *testing.T) {
	var out, errs bytes.Buffer
	c := newConsole(&out, &errs, false, false, slog.LevelInfo)
	c.ready(local.Info{URL: "http://127.0.0.1:8080"}, []api.Function{{Name: "default/pico", Model: "pico"}}, declaredSet{Hints: []string{"bad can't be served"}})
	c.observe(report(api.InstanceStatus{State: api.Starting}))
	if out.Len() > 0 {
		t.Errorf("standard output has %q, want nothing", out.String())
	}
	var messages []string
	for line := range strings.Lines(errs.String()) {
		var l struct{ Msg, URL string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q is not JSON: %v", line, err)
		}
		messages = append(messages, l.Msg)
	}
	if diff := cmp.Diff([]string{"declared", "hint", "ready"}, messages); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

func TestYAMLHasTheNamesOfJSON(t *testing.T) {
	var out bytes.Buffer
	if err := render.YAML(&out, []api.Decision{{Function: "default/pico", Action: "start", Reason: "1 waiting: none awake"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"- at: ", "function: default/pico\n", "action: start\n", "reason: '1 waiting: none awake'\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the YAML lacks %q:\n%s", want, out.String())
		}
	}
}

func TestServerTimingIsRead(t *testing.T) {
	var m measured
	m.timing([]string{"hold;dur=12.5, wake;dur=10, queue;dur=2.5, ttft;dur=3", "nonsense, x;dur=y"})
	want := measured{hold: 12500 * time.Microsecond, wake: 10 * time.Millisecond, queue: 2500 * time.Microsecond}
	if m != want {
		t.Errorf("timing %+v, want %+v", m, want)
	}
	m.firstToken, m.total, m.tokens = time.Second, 3*time.Second, 101
	if _, err := m.take(`: rouse fallback=small; reason="start_failed"`, time.Time{}, chatEvents{}); err != nil {
		t.Fatal(err)
	}
	if got, want := m.line(), `[answered by small; reason="start_failed" · hold 12.5ms · wake 10ms · queue 2.5ms · first token 1s · 101 tokens · 50 tokens/s]`; got != want {
		t.Errorf("line %q, want %q", got, want)
	}
}

func TestQuantiles(t *testing.T) {
	var ds []time.Duration
	for i := range 100 {
		ds = append(ds, time.Duration(100-i)*time.Millisecond)
	}
	want := map[string]float64{"p50": 51, "p95": 96, "p99": 100, "max": 100}
	if diff := cmp.Diff(want, quantiles(ds)); diff != "" {
		t.Errorf("quantiles of 1 to 100 ms (-want +got):\n%s", diff)
	}
	if quantiles(nil) != nil {
		t.Error("quantiles of nothing are something")
	}
}

// TestSignalsAtOnceAreOne wants the second Ctrl-C of a person, not what a wrapper passes on.
func TestSignalsAtOnceAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal)
		returned := make(chan struct{})
		go func() {
			again(signals)
			close(returned)
		}()
		synctest.Wait()
		signals <- os.Interrupt
		time.Sleep(echo)
		select {
		case <-returned:
			t.Fatal("an echo of the first signal ends everything at once")
		default:
		}
		time.Sleep(time.Millisecond)
		signals <- os.Interrupt
		<-returned
	})
}

// TestArgumentsAreExplained wants each wrong command line to name the right one.
func TestArgumentsAreExplained(t *testing.T) {
	for args, want := range map[string]string{
		"describe":            "want rouse describe NAME [flags]",
		"ls x":                "want rouse ls [flags]",
		"trace":               "want rouse trace NAME [flags]",
		"engine pico":         "see rouse engine --help",
		"models rm":           "want rouse models rm MODEL [flags]",
		"up --modelx x":       "unknown flag: --modelx: did you mean --model?",
		"scale a 1 --foor 1m": "did you mean --for?",
		"up --keys=":          "--keys is empty",
	} {
		err := Execute(t.Context(), strings.Fields(args), nil, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rouse %s: %v, want an error with %q", args, err, want)
		}
	}
	var out bytes.Buffer
	if err := Execute(t.Context(), []string{"--version"}, nil, &out, io.Discard); err != nil || !strings.HasPrefix(out.String(), "rouse ") {
		t.Errorf("rouse --version: %q, %v", out.String(), err)
	}
}

// TestHelp wants every command to say what it is for, and none to be missing.
func TestHelp(t *testing.T) {
	root := Command()
	want := map[string]bool{}
	for _, name := range []string{"up", "ls", "run", "wake", "sleep", "rm", "apply", "describe", "logs", "events", "why", "bench", "version"} {
		want[name] = true
	}
	for _, c := range root.Commands() {
		delete(want, c.Name())
		if c.Short == "" {
			t.Errorf("%s does not say what it is for", c.Name())
		}
	}
	if len(want) > 0 {
		t.Errorf("the commands lack %v", want)
	}
}

// TestConsoleDrawsOneBar follows a start of which nothing is known, then a part, then
// nothing: one line is redrawn, and nothing draws once the start is over.
func TestConsoleDrawsOneBar(t *testing.T) {
	const every = 100 * time.Millisecond // a bar is redrawn
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := newConsole(&out, &out, true, true, slog.LevelInfo)
		for _, share := range []float64{0, 0.5, 0} {
			c.observe(report(api.InstanceStatus{State: api.Starting, Stage: "fetching", Progress: share, Since: time.Now()}))
			time.Sleep(barAfter + 10*every)
		}
		c.log.Warn("something else")
		c.observe(report(api.InstanceStatus{State: api.Awake, LoadTime: time.Second}))
		drawn := out.String()
		if n, most := strings.Count(drawn, "fetching"), int(3*(barAfter+10*every)/every); n < 10 || n > most {
			t.Errorf("drawn %d times, want 10 to %d:\n%q", n, most, drawn)
		}
		if !strings.Contains(drawn, "50%") {
			t.Errorf("half of the start shows nowhere:\n%q", drawn)
		}
		for _, line := range []string{"time=", "00:00:03  pico is awake"} {
			if before, _, found := strings.Cut(drawn, line); !found || !strings.HasSuffix(before, " \r") && !strings.HasSuffix(before, "\n") {
				t.Errorf("%q does not have a line of its own:\n%q", line, drawn)
			}
		}
		time.Sleep(time.Minute)
		if rest := out.String()[len(drawn):]; rest != "" {
			t.Errorf("after the start is drawn: %q", rest)
		}
		c.close()
	})
}
