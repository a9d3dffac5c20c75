// The benchmark cluster measures functions of Rouse beside functions of stock Knative: one cluster, one ingress, one run,
// rounds of the two in turn. Both greet from their own process (e2e/knative/greeter), so that the measurement covers
// only the path between a client and a function.
//
// It needs a cluster with Rouse and the tests' images in it, as the tests of e2e/knative leave it:
//
//	make cluster && go test -run TestLifeOfAFunction ./e2e/knative
//	kubectl apply -k e2e/knative/injector # the component any-image
//	go run ./e2e/bench cluster -only 'warm|zero' -o docs/bench/cluster.json
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

// ingress is the address of the ingress in the cluster of make cluster.
const ingress = "http://10.250.0.2"

// localBench is one run.
type clusterBench struct {
	rounds int // of cold starts of each side; the others are in proportion
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

// suite is measurements of some functions.
type suite struct {
	name      string
	functions map[string][]string // arguments of kn service apply
	run       func(*clusterBench, context.Context) ([]report.Measurement, error)
}

var suites = []suite{
	{"warm", only("bench-stock-warm", "bench-rouse-warm"), (*clusterBench).warm},
	{"zero", only("bench-stock-zero", "bench-rouse-zero", "bench-rouse-nap"), (*clusterBench).zero},
	{"wake", wakers, (*clusterBench).wake},
	{"crowd", nil, (*clusterBench).wakeCrowd},
}

// only are some of the functions.
func only(names ...string) map[string][]string {
	some := map[string][]string{}
	for _, n := range names {
		some[n] = functions[n]
	}
	return some
}

// measure makes a suite's functions for as long as it runs.
func (b *clusterBench) measure(ctx context.Context, s suite) ([]report.Measurement, error) {
	defer b.remove(s.functions)
	for name, args := range s.functions {
		if _, err := command(ctx, "kn", append([]string{"service", "apply", name}, args...)...); err != nil {
			return nil, err
		}
	}
	return s.run(b, ctx)
}

// The functions. Stock ones that stay warm have a burst capacity of -1, which keeps
// the activator on the path as it always is for ours.
var functions = map[string][]string{
	"bench-stock-warm": {"--image", "dev.local/foreign:v1", "--scale-min", "1", "-a", "autoscaling.knative.dev/target-burst-capacity=-1"},
	"bench-stock-zero": {"--image", "dev.local/foreign:v1", "--scale-window", "6s"},
	"bench-rouse-warm": ours("rouse.dev/sleep-after=0"),
	"bench-rouse-zero": ours("rouse.dev/sleep-after=1s", "rouse.dev/gone-after=1s"),
	"bench-rouse-nap":  ours("rouse.dev/sleep-after=1s", "rouse.dev/gone-after=0"),
}

func ours(annotations ...string) []string {
	args := []string{"--image", "dev.local/rouse-greeter:v1", "--scale-init", "0", "--concurrency-limit", "128"}
	for _, a := range append(annotations, "rouse.dev/model=pico", "autoscaling.knative.dev/class=gpu.autoscaling.rouse.dev") {
		args = append(args, "--annotation-revision", a)
	}
	return args
}

// answering waits until functions have answered once.
func (b *clusterBench) answering(ctx context.Context, names ...string) error {
	for _, name := range names {
		if _, err := b.request(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (b *clusterBench) remove(functions map[string][]string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name := range functions {
		if _, err := command(ctx, "kn", "service", "delete", name); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func command(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// apply applies YAML.
func apply(ctx context.Context, yaml string) error {
	cmd := exec.CommandContext(ctx, "kubectl", "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(yaml)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, out)
	}
	return nil
}

// request asks a function to greet and returns the time to the answer's first byte.
func (b *clusterBench) request(ctx context.Context, name string) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ingress+"/greet", nil)
	if err != nil {
		return 0, err
	}
	req.Host = name + ".default.example.com"
	began := time.Now()
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || string(body) != "hello\n") {
		err = fmt.Errorf("%s answers %s: %s", name, resp.Status, body)
	}
	return took, err
}

// warm measures functions that are awake: one request at a time, and 64.
func (b *clusterBench) warm(ctx context.Context) ([]report.Measurement, error) {
	const serial = 300
	var one, all [2][]float64
	names := []string{"bench-rouse-warm", "bench-stock-warm"}
	if err := b.answering(ctx, names...); err != nil {
		return nil, err
	}
	for range b.rounds {
		for side, name := range names {
			p50, err := b.serial(ctx, name, serial)
			if err != nil {
				return nil, err
			}
			one[side] = append(one[side], p50)
		}
		for side, name := range names {
			rate, err := b.flood(ctx, name, 64, 2*time.Second)
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

func (b *clusterBench) serial(ctx context.Context, name string, n int) (p50 float64, err error) {
	took := make([]float64, n)
	for i := range took {
		d, err := b.request(ctx, name)
		if err != nil {
			return 0, err
		}
		took[i] = report.Millis(d)
	}
	return report.Quantile(took, 0.5), nil
}

func (b *clusterBench) flood(ctx context.Context, name string, clients int, d time.Duration) (rate float64, err error) {
	_, rate, err = Flood(d, clients, func() error {
		_, err := b.request(ctx, name)
		return err
	})
	return rate, err
}

// zero measures functions with no pod, and ours asleep, in turn.
func (b *clusterBench) zero(ctx context.Context) ([]report.Measurement, error) {
	names := []string{"bench-rouse-zero", "bench-stock-zero", "bench-rouse-nap"}
	ready := []func(context.Context, string) error{b.gone, b.gone, b.asleep}
	took := make([][]float64, len(names))
	if err := b.answering(ctx, names...); err != nil {
		return nil, err
	}
	for range b.rounds {
		for side, name := range names {
			if err := ready[side](ctx, name); err != nil {
				return nil, err
			}
			d, err := b.request(ctx, name)
			if err != nil {
				return nil, err
			}
			took[side] = append(took[side], report.Millis(d))
		}
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

// gone waits until a function has no pod, not even one on its way out.
func (b *clusterBench) gone(ctx context.Context, name string) error {
	return b.until(ctx, name+" has no pods", func() (bool, error) {
		out, err := command(ctx, "kubectl", "get", "pods", "-l", "serving.knative.dev/service="+name, "-o", "name")
		return strings.TrimSpace(out) == "", err
	})
}

// asleep waits until a function's instance sleeps.
func (b *clusterBench) asleep(ctx context.Context, name string) error {
	return b.until(ctx, name+" sleeps", func() (bool, error) {
		out, err := command(ctx, "kn", "rouse", "describe", name, "-o", "json")
		return strings.Contains(strings.ReplaceAll(out, " ", ""), `"state":"asleep"`), err
	})
}

func (b *clusterBench) until(ctx context.Context, what string, check func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("waited 5 minutes until %s", what))
	defer cancel()
	for {
		done, err := check()
		if done || err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
