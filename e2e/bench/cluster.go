// The benchmark cluster measures functions of Rouse beside functions of stock Knative, in turns, through one ingress.
// Both greet from their own process.
//
// It needs a cluster as the tests of e2e/knative leave it:
//
//	make cluster && go test -run TestLifeOfAFunction ./e2e/knative
//	kubectl apply -k e2e/knative/injector # the component any-image
//	go run ./e2e/bench cluster -only warm -o docs/bench/cluster-warm.json
//	go run ./e2e/bench cluster -only zero -o docs/bench/cluster.json
//	go run ./e2e/bench cluster -only 'wake|crowd' -o docs/bench/wake.json
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

const ingress = "http://10.250.0.2"

type clusterBench struct {
	rounds int // of cold starts of each side; others are in proportion
	client *http.Client
}

func runCluster() {
	rounds := flag.Int("rounds", 10, "`number` of cold starts of each side; the others are in proportion")
	report.Main(func(ctx context.Context, r *report.Run) error {
		b := &clusterBench{*rounds, &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
		defer b.client.CloseIdleConnections()
		var parts []report.Part
		for _, s := range suites {
			parts = append(parts, report.Part{Name: s.name, Measure: func(ctx context.Context) ([]report.Measurement, error) { return b.measure(ctx, s) }})
		}
		return r.Parts(ctx, parts...)
	})
}

type suite struct {
	name      string
	functions map[string][]string // arguments of kn service apply
	run       func(*clusterBench, context.Context) ([]report.Measurement, error)
}

var suites = []suite{
	{"warm", map[string][]string{"bench-stock-warm": stockWarm, "bench-rouse-warm": ours("rouse.dev/sleep-after=0")}, (*clusterBench).warm},
	{"zero", map[string][]string{
		"bench-stock-zero": {"--image", "dev.local/foreign:v1", "--scale-window", "6s"},
		"bench-rouse-zero": ours("rouse.dev/sleep-after=1s", "rouse.dev/gone-after=1s"),
		"bench-rouse-nap":  ours("rouse.dev/sleep-after=1s", "rouse.dev/gone-after=0"),
	}, (*clusterBench).zero},
	{"wake", wakers, (*clusterBench).wake},
	{"crowd", nil, (*clusterBench).wakeCrowd},
}

func (b *clusterBench) measure(ctx context.Context, s suite) ([]report.Measurement, error) {
	defer b.remove(s.functions)
	for name, args := range s.functions {
		if _, err := command(ctx, "", "kn", append([]string{"service", "apply", name}, args...)...); err != nil {
			return nil, err
		}
	}
	return s.run(b, ctx)
}

// stockWarm keeps the activator on the path, by a burst capacity of -1, as it always is for ours.
var stockWarm = []string{"--image", "dev.local/foreign:v1", "--scale-min", "1", "-a", "autoscaling.knative.dev/target-burst-capacity=-1"}

func ours(annotations ...string) []string {
	args := []string{"--image", "dev.local/rouse-greeter:v1", "--scale-init", "0", "--concurrency-limit", "128"}
	for _, a := range append(annotations, "rouse.dev/model=pico", "autoscaling.knative.dev/class=gpu.autoscaling.rouse.dev") {
		args = append(args, "--annotation-revision", a)
	}
	return args
}

func (b *clusterBench) remove(functions map[string][]string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name := range functions {
		if _, err := command(ctx, "", "kn", "service", "delete", name); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func command(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (b *clusterBench) of(name string) *Client {
	return &Client{HTTP: b.client, Base: ingress, Host: name + ".default.example.com"}
}

// request returns when the answer came.
func (b *clusterBench) request(ctx context.Context, name string) (at time.Time, err error) {
	resp, err := b.of(name).Send(ctx, http.MethodGet, "/greet", nil, nil)
	if err != nil {
		return at, err
	}
	at = time.Now()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && string(body) != "hello\n" {
		err = fmt.Errorf("%s answers %s", name, body)
	}
	return at, err
}

func (b *clusterBench) answers(ctx context.Context, name string, as func(context.Context, string) error) round {
	return round{func() error { return as(ctx, name) }, func() (time.Time, error) { return b.request(ctx, name) }}
}

func (b *clusterBench) warm(ctx context.Context) ([]report.Measurement, error) {
	const serial = 300
	var one, all [2][]float64
	for range b.rounds {
		for side, name := range []string{"bench-rouse-warm", "bench-stock-warm"} {
			took, err := takeTurns(serial, 1, b.answers(ctx, name, ready))
			if err != nil {
				return nil, err
			}
			one[side] = append(one[side], report.Quantile(took[0], 0.5))
			_, rate, err := Flood(2*time.Second, 64, func() error {
				_, err := b.request(ctx, name)
				return err
			})
			if err != nil {
				return nil, err
			}
			all[side] = append(all[side], rate)
		}
	}
	const against = "a function of Knative's own class with the activator on its path, the same program, through the same ingress"
	m := report.Compare(report.Measurement{
		Name: "warm, one at a time", Unit: "ms", Against: against,
		What: fmt.Sprintf("the p50 of rounds of %d requests through ingress, activator and function", serial),
	}, one[0], one[1])
	n := report.Compare(report.Measurement{
		Name: "warm, 64 at a time", Unit: "requests/s", Against: against,
		What: "rounds of 2 s with 64 clients through ingress, activator and function; client, ingress and pods share the machine",
	}, all[0], all[1])
	return []report.Measurement{m.Gated(m.Ratio <= 0.7, "ratio ≤ 0.7"), n.Gated(n.Ratio >= 1.6, "ratio ≥ 1.6")}, nil
}

func ready(context.Context, string) error { return nil }

func (b *clusterBench) zero(ctx context.Context) ([]report.Measurement, error) {
	if _, err := b.request(ctx, "bench-rouse-nap"); err != nil { // there has to be a pod
		return nil, err
	}
	took, err := takeTurns(b.rounds, 0, b.answers(ctx, "bench-rouse-zero", b.gone), b.answers(ctx, "bench-stock-zero", b.gone), b.answers(ctx, "bench-rouse-nap", b.asleep))
	if err != nil {
		return nil, err
	}
	const against = "a function of Knative's own class with no pod, the same program, through the same ingress"
	cold := report.Compare(report.Measurement{
		Name: "from zero pods", Unit: "ms", Against: against,
		What: "a request for a function with no pod to the first byte of its answer, through ingress and activator",
	}, took[0], took[1])
	nap := report.Compare(report.Measurement{
		Name: "from asleep", Unit: "ms", Against: against,
		What: "a request for a function whose one pod sleeps at level 1 to the first byte of its answer, through ingress and activator",
	}, took[2], took[1])
	best := slices.Min(took[1])
	return []report.Measurement{
		cold.Gated(cold.Rouse.P50 <= best, "p50 not above stock's best, %.0f ms", best),
		nap.Gated(nap.Ratio <= 1.0/50, "ratio of p50 ≤ 1/50"),
	}, nil
}

func (b *clusterBench) gone(ctx context.Context, name string) error {
	return says(ctx, func(out string) bool { return strings.TrimSpace(out) == "" }, "kubectl", "get", "pods", "-l", "serving.knative.dev/service="+name, "-o", "name")
}

func (b *clusterBench) asleep(ctx context.Context, name string) error {
	return says(ctx, func(out string) bool { return strings.Contains(strings.ReplaceAll(out, " ", ""), `"state":"asleep"`) }, "kn", "rouse", "describe", name, "-o", "json")
}

func says(ctx context.Context, wanted func(string) bool, name string, args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("%s %s does not say what is wanted", name, strings.Join(args, " ")))
	defer cancel()
	return await(ctx, 250*time.Millisecond, func() (bool, error) {
		out, err := command(ctx, "", name, args...)
		return wanted(out), err
	})
}
