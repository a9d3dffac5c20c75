package replicas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// brain is a source of metrics, by script, and what is set.
type brain struct {
	t *testing.T

	mu      sync.Mutex // guards what follows
	text    string
	by      map[string]string // in place of text, by host
	fails   error
	failing string // the host that fails; empty: all
	reads   int
	sets    []string
	has     map[Target]int
	slow    time.Duration
	setBy   error
	renew   bool
}

func (b *brain) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	if b.fails != nil && (b.failing == "" || r.URL.Host == b.failing) {
		return nil, b.fails
	}
	text, found := b.by[r.URL.Host]
	if !found {
		text = b.text
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

func (b *brain) Set(ctx context.Context, t Target, n int, dry bool) (Outcome, error) {
	b.mu.Lock()
	slow := b.slow
	b.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return Outcome{}, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.setBy != nil {
		b.sets = append(b.sets, fmt.Sprintf("%s fails", t))
		return Outcome{}, b.setBy
	}
	o := Outcome{Was: b.has[t], Changed: b.has[t] != n || b.renew, Renew: b.renew}
	if o.Changed {
		b.sets = append(b.sets, fmt.Sprintf("%s %d", t, n))
	}
	if !dry {
		b.has[t] = n
	}
	return o, nil
}

// change changes what the brain says or does.
func (b *brain) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// want compares what was set since the last look.
func (b *brain) want(sets ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.sets)
	if diff := cmp.Diff(sets, b.sets); diff != "" {
		b.t.Errorf("at %s sets (-want +got):\n%s", time.Now().Format("15:04:05"), diff)
	}
	b.sets = nil
}

// relayed runs a relay on a metrics source and returns its logs.
func relayed(t *testing.T, cfg Config, b *brain, f func(logs *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b.t, b.has = t, map[Target]int{}
		logs := &bytes.Buffer{}
		if cfg.Sources == nil {
			cfg.Sources = []string{"http://brain/metrics"}
		}
		r, err := New(cfg, Deps{Client: &http.Client{Transport: b}, Setter: b, Registry: prometheus.NewRegistry(),
			Log: slog.New(slog.NewTextHandler(&locked{w: logs}, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		f(logs)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var oneRule = Config{Metric: "wva_desired_replicas", Targets: []Rule{{Kind: Deployment, Name: "{variant_name}-pods", Max: 8}}}

func says(n any) string {
	return fmt.Sprintf("# TYPE wva_desired_replicas gauge\nwva_desired_replicas{variant_name=\"a\",exported_namespace=\"ns\"} %v\nother 1\n", n)
}

// A number is set within a second of its change, once; again where others have
// written to the target.
func TestSetsOnChangeAndDrift(t *testing.T) {
	b := &brain{text: says(2)}
	relayed(t, oneRule, b, func(*bytes.Buffer) {
		a := Target{Deployment, "ns", "a-pods"}
		pass(time.Second)
		b.want("deployment ns/a-pods 2")
		pass(time.Minute)
		b.want()
		b.change(func() { b.text = says(2.1) })
		pass(1200 * time.Millisecond)
		b.want("deployment ns/a-pods 3")
		b.change(func() { b.has[a] = 7 })
		pass(16 * time.Second)
		b.want("deployment ns/a-pods 3")
		b.change(func() { b.text = says(1e9) })
		pass(1200 * time.Millisecond)
		b.want("deployment ns/a-pods 8")
		if b.reads < 70 || b.reads > 90 {
			t.Errorf("%d readings in 79 s, want about one each", b.reads)
		}
	})
}

// What can't be read, is missing or is no number changes nothing, and is said once.
func TestStaleChangesNothing(t *testing.T) {
	for name, spoil := range map[string]func(*brain){
		"no source": func(b *brain) { b.fails = errors.New("connection refused") },
		"no series": func(b *brain) { b.text = "other 1\n" },
		"NaN":       func(b *brain) { b.text = says("NaN") },
		"negative":  func(b *brain) { b.text = says(-1) },
		"infinite":  func(b *brain) { b.text = says("+Inf") },
		"no text":   func(b *brain) { b.text = "<html>" },
		"no gauge":  func(b *brain) { b.text = "# TYPE wva_desired_replicas histogram\nwva_desired_replicas_count 1\n" },
	} {
		t.Run(name, func(t *testing.T) {
			b := &brain{text: says(2)}
			relayed(t, oneRule, b, func(logs *bytes.Buffer) {
				pass(time.Second)
				b.want("deployment ns/a-pods 2")
				b.change(func() { spoil(b); b.has[Target{Deployment, "ns", "a-pods"}] = 5 })
				pass(5 * time.Minute)
				b.sets = nil // a look within the time that a reading is good may have mended the drift
				pass(time.Minute)
				b.want()
				if got := strings.Count(logs.String(), "is left as it is"); got != 1 {
					t.Errorf("it was said %d times, want once:\n%s", got, logs)
				}
				b.change(func() { b.text, b.fails = says(4), nil })
				pass(40 * time.Second)
				b.want("deployment ns/a-pods 4")
			})
		})
	}
}

// A target whose series never was a number is forgotten with its series.
func TestNeverKnownIsForgotten(t *testing.T) {
	cfg := oneRule
	cfg.Sources = []string{"http://brain/metrics"}
	r, err := New(cfg, Deps{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for want, text := range []string{"other 1\n", says("NaN"), "other 1\n"} {
		want %= 2
		found, err := parse(strings.NewReader(text), cfg.Metric)
		r.take(reading{source: cfg.Sources[0], series: found, err: err, at: time.Now()})
		if len(r.targets) != want {
			t.Errorf("after %q there are %d targets, want %d", text, len(r.targets), want)
		}
	}
}

// Of two sources for one target, one that is away for a moment lowers nothing; one that
// stays away does.
func TestASourceIsAwayForAMoment(t *testing.T) {
	cfg := oneRule
	cfg.Sources = []string{"http://high:s3cret@a/metrics", "http://b/metrics"}
	b := &brain{text: says(2), by: map[string]string{"a": says(6)}}
	relayed(t, cfg, b, func(logs *bytes.Buffer) {
		pass(3 * time.Second)
		b.sets = nil // one of them came first
		b.change(func() { b.fails, b.failing = errors.New("connection refused"), "a" })
		pass(1500 * time.Millisecond)
		b.change(func() { b.fails = nil })
		pass(time.Minute)
		b.want()
		b.change(func() { b.fails = errors.New("connection refused") })
		pass(time.Minute)
		b.want("deployment ns/a-pods 2")
		if strings.Contains(logs.String(), "is left as it is") || !strings.Contains(logs.String(), "can't be read") {
			t.Errorf("want what can't be read, and no target that is left:\n%s", logs)
		}
		if strings.Contains(logs.String(), "s3cret") {
			t.Errorf("the log has a password:\n%s", logs)
		}
	})
}

// One target that hangs holds up no other, and one that fails is tried less and less often.
func TestTargetsAreApart(t *testing.T) {
	two := says(1) + `wva_desired_replicas{variant_name="b",namespace="ns"} 2` + "\n"
	b := &brain{text: two, setBy: errors.New("forbidden")}
	relayed(t, oneRule, b, func(logs *bytes.Buffer) {
		pass(2 * time.Minute)
		if n := len(b.sets); n < 10 || n > 30 {
			t.Errorf("%d tries in two minutes for two targets, want some, and fewer and fewer", n)
		}
		if got := strings.Count(logs.String(), "forbidden"); got != 2 {
			t.Errorf("said %d times, want once for each target", got)
		}
		b.change(func() { b.setBy, b.sets, b.slow = nil, nil, 5*time.Second })
		pass(40 * time.Second)
		b.want("deployment ns/a-pods 1", "deployment ns/b-pods 2")
	})
}

// A function is told again and again, long before it forgets.
func TestFunctionsAreRenewed(t *testing.T) {
	b := &brain{text: says(2), renew: true}
	relayed(t, oneRule, b, func(logs *bytes.Buffer) {
		pass(time.Minute)
		if n := len(b.sets); n < 4 || n > 6 {
			t.Errorf("%d sets in a minute of lifetime, want one each 15 s", n)
		}
		if got := strings.Count(logs.String(), "scaled"); got != 1 {
			t.Errorf("said %d times, want once:\n%s", got, logs)
		}
	})
}

func TestDryRun(t *testing.T) {
	b := &brain{text: says(2)}
	cfg := oneRule
	cfg.DryRun = true
	relayed(t, cfg, b, func(logs *bytes.Buffer) {
		pass(time.Second)
		if len(b.has) != 0 && b.has[Target{Deployment, "ns", "a-pods"}] != 0 || !strings.Contains(logs.String(), "dry=true") {
			t.Errorf("a dry run set %v:\n%s", b.has, logs)
		}
	})
}

func TestWishes(t *testing.T) {
	cfg := Config{Sources: []string{"http://s"}, Targets: []Rule{
		{Labels: map[string]string{"variant_name": "llm-*", "exported_namespace": "prod"}, Kind: StatefulSet, Min: 1},
		{Labels: map[string]string{"model": "tiny"}, Kind: Service, Namespace: "models", Name: "{model}"},
	}}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	at := func(value float64, labels ...string) series {
		s := series{value: value, labels: map[string]string{}}
		for i := 0; i < len(labels); i += 2 {
			s.labels[labels[i]] = labels[i+1]
		}
		return s
	}
	got, errs := cfg.wishes([]series{
		at(0, "variant_name", "llm-a", "namespace", "prod"),
		at(2, "variant_name", "llm-b", "exported_namespace", "prod", "replica", "0"),
		at(4, "variant_name", "llm-b", "exported_namespace", "prod", "replica", "1"),
		at(9, "variant_name", "other", "namespace", "prod"),
		at(3, "model", "tiny", "variant_name", "x"),
		at(3, "variant_name", "llm-A_b", "namespace", "prod"),
	})
	want := map[Target]wish{
		{StatefulSet, "prod", "llm-a"}: {replicas: 1, known: true}, {StatefulSet, "prod", "llm-b"}: {replicas: 4, known: true}, {Service, "models", "tiny"}: {replicas: 3, known: true},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(wish{})); diff != "" {
		t.Errorf("wishes (-want +got):\n%s", diff)
	}
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "which is none in Kubernetes") {
		t.Errorf("errors %v, want one about a name", errs)
	}
}

func TestConfigRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"sources: [http://s]\ntargets: [{kind: deployment}]\nfoo: 1":                  "field foo not found",
		"targets: [{kind: deployment}]":                                               "no sources",
		"sources: [http://s]":                                                         "no targets",
		"sources: [\"s:1\"]\ntargets: [{kind: deployment}]":                           "want http://host:port/path",
		"sources: [http://s]\ntargets: [{kind: daemonset}]":                           "want one of",
		"sources: [http://s]\ntargets: [{kind: service, name: \"{a\"}]":               "stands for a label",
		"sources: [http://s]\ntargets: [{kind: service, min: 3, max: 2}]":             "max not below min",
		"sources: [http://s]\ntargets: [{kind: service, labels: {a: \"[\"}}]":         "pattern",
		"sources: [http://s]\ntargets: [{kind: service}]\ninterval: 1ms":              "at least 100ms",
		"sources: [http://s]\ntargets: [{kind: service}]\nmetric: \"a b\"":            "name of a metric",
		"sources: [http://s]\ntargets: [{kind: service}]\nlifetime: 1s":               "three intervals",
		"sources: [http://s]\ntargets: [{kind: service}]\nrate: -1":                   "more than 0",
		"sources: [http://s]\ntargets: [{kind: service}]\nrate: .nan":                 "more than 0",
		"sources: [http://s]\ntargets: [{kind: service}]\nrate: .inf":                 "at most 10000 writes",
		"sources: [http://s]\ntargets: [{kind: service}]\ninterval: 5":                "such as 30s",
		"sources: [http://s]\ntargets: [{kind: service}]\ninterval: 2h\nlifetime: 9h": "at most 1h0m0s",
		"sources: [http://s]\ntargets: [{kind: service}]\nlifetime: 25h":              "at most",
		"sources: [http://s]\ntargets: [{kind: service, max: 9223372036854775807}]":   "want at most 2147483647",
		"sources: [http://s]\ntargets: [{kind: service}]\n---\nmetric: other":         "behind the first document",
		"sources: [http://s]\ntargets: [{kind: Service, name: \"{variant_name}\"}]":   "",
	} {
		c, err := Parse([]byte(text))
		if err == nil {
			err = c.Validate()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzParse has no text make it panic.
func FuzzParse(f *testing.F) {
	f.Add(says(1))
	f.Add("a{b=\"c\"} NaN\n# EOF")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parse(strings.NewReader(text), "wva_desired_replicas")
	})
}
