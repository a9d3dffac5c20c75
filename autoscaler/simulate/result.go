package simulate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Policy is a policy and its parameters. Declared values ([Model.Declared]) override them, unless Keep is given.
type Policy struct {
	// Name is one of [All].
	Name string
	// Keep is how long unneeded instances stay. 0: the policy's default; [Forever]: until others need the room.
	Keep time.Duration `flag:"keep" help:"how long what is idle stays, for every policy (default: the policy's own)"`
	// KeepSlow replaces Keep for models that don't wake within Quick, in policies with sleepers; 0: Keep.
	KeepSlow, Quick time.Duration
	// UnloadAfter is how long a sleeper of Rouse stays; 0: until its memory is needed.
	UnloadAfter time.Duration `flag:"unload-after" help:"how long a sleeper stays, for rouse (default: until its memory is wanted)"`
	NoPrewake   bool          `flag:"no-prewake" help:"wake and start only for requests that are there, for rouse"`
	// as in [api.Function], for Rouse
	Rehearse string `flag:"rehearse" help:"whether first sleeps are rehearsed, for rouse: measured, always or never"`
	// as in [api.Function], for Rouse
	Suspend string `flag:"suspend" help:"whether a sleeper's process is taken off its GPU, for rouse: auto (where others need the memory), on or off"`
	// 0 means 2, as in the chart of its source
	SleeperLimit int `flag:"sleeper-limit" least:"1" help:"most sleepers on a GPU, for random"`

	each bool // Keep was not given
}

// Validate reports a value of Rehearse or Suspend that does not exist.
func (p Policy) Validate() error {
	switch {
	case p.Rehearse != api.RehearseMeasured && p.Rehearse != api.RehearseAlways && p.Rehearse != api.RehearseNever:
		return fmt.Errorf("rehearse %s: want %s, %s or %s", p.Rehearse, api.RehearseMeasured, api.RehearseAlways, api.RehearseNever)
	case p.Suspend != api.SuspendAuto && p.Suspend != api.SuspendOn && p.Suspend != api.SuspendOff:
		return fmt.Errorf("suspend %s: want %s, %s or %s", p.Suspend, api.SuspendAuto, api.SuspendOn, api.SuspendOff)
	}
	return nil
}

func (p Policy) keep(m *Model) time.Duration {
	if p.each && m.Declared != nil {
		return m.Declared.SleepAfter
	}
	if p.KeepSlow > 0 && m.Wake[api.Level1] > p.Quick {
		return p.KeepSlow
	}
	return p.Keep
}

func (p Policy) withDefaults() Policy {
	if p.Keep == 0 {
		p.Keep, p.each = defaultKeep[p.Name], true
	}
	return p
}

// Forever is a [Policy.Keep] that never ends.
const Forever time.Duration = math.MaxInt64

// Names are the default policies, in their order; Peers are more, and All is both.
var (
	Names = []string{"rouse", "knative", "keepalive", "random"}
	Peers = []string{"tokens", "prewarm", "planner"}
	All   = slices.Concat(Names, Peers)
)

var controllers = map[string]func(*world, Policy) controller{
	"rouse": newRouse, "knative": newKnative, "keepalive": newKeepalive, "random": newRandom,
	"tokens": newTokens, "prewarm": newPrewarm, "planner": newPlanner,
}

var defaultKeep = map[string]time.Duration{
	"rouse":     time.Minute,     // config.DefaultSleepAfter
	"knative":   time.Minute,     // stable-window; scale-to-zero-pod-retention-period is 0
	"keepalive": 5 * time.Minute, // OLLAMA_KEEP_ALIVE
	"random":    time.Minute,     // its source leaves it to the requesters' scaler
	"tokens":    time.Minute,     // its source has a pool that is held for ever
	"prewarm":   time.Minute,
	"planner":   time.Minute,
}

// Result is the result of one policy on a trace.
type Result struct {
	Name string `json:"name"`
	// GPUHours are as in the package comment.
	GPUHours float64 `json:"gpu_hours"`
	// HotShare is the share of rises that woke a sleeper; 0 if there were none.
	HotShare float64 `json:"hot_share"`
	// P50 and P95 are times to first token. A refused request counts with Config.Hold.
	P50     float64 `json:"ttft_p50_ms"`
	P95     float64 `json:"ttft_p95_ms"`
	Refused int     `json:"refused"`
	// Broken ended with a partial answer because a node left.
	Broken int `json:"broken,omitempty"`
	// Swaps is how often an instance gave way to another function.
	Swaps int `json:"swaps"`

	P99 float64 `json:"ttft_p99_ms"`
	// WholeP95 is of the times to last token of served requests.
	WholeP95 float64 `json:"whole_p95_ms"`
	// ColdHits found no instance awake.
	ColdHits int     `json:"cold_hits"`
	ColdP95  float64 `json:"cold_ttft_p95_ms"`
	Served   int     `json:"served"`
	Starts   int     `json:"starts"`
	Wakes    int     `json:"wakes"`
	// -1 for Forever
	KeepSeconds     float64 `json:"keep_seconds"`
	KeepSlowSeconds float64 `json:"keep_slow_seconds,omitempty"`
	// KeepDeclared: KeepSeconds was used only for functions without declared values.
	KeepDeclared    bool    `json:"keep_declared,omitempty"`
	SleeperGiBHours float64 `json:"sleeper_gib_hours"`
	// HeldShare is of the available hours.
	HeldShare float64 `json:"held_share"`
	// TargetMet: P95 is at most the searched target, or there was none.
	TargetMet bool `json:"target_met"`

	spans  []span
	waits  []mark
	length time.Duration
}

// Run replays a trace under a policy until every request has ended and horizon has come, or ctx has ended. Errors are
// of the input, or of a policy that exceeded the memory.
func Run(ctx context.Context, cfg Config, trace Trace, horizon time.Duration, p Policy) (Result, error) {
	cfg = cfg.WithDefaults(trace)
	if err := cfg.Validate(); err != nil {
		return Result{}, err
	}
	newController, found := controllers[p.Name]
	if !found {
		return Result{}, fmt.Errorf("policy %q: want one of %v", p.Name, All)
	}
	p = p.withDefaults()
	w := newWorld(cfg)
	w.controller = newController(w, p)
	if err := w.run(ctx, trace, horizon); err != nil {
		return Result{}, fmt.Errorf("policy %s: %w", p.Name, err)
	}
	return w.result(p), nil
}

func (w *world) result(p Policy) Result {
	for _, f := range w.functions {
		for _, u := range f.units {
			w.become(u, u.state)
		}
	}
	slices.Sort(w.first)
	slices.Sort(w.ends)
	r := Result{
		Name: p.Name, GPUHours: w.held().Hours(), Refused: w.refused, Served: w.served, Broken: w.broken, Swaps: w.swaps,
		Starts: w.starts, Wakes: w.wakes, SleeperGiBHours: w.sleepers, TargetMet: true,
		KeepSeconds: inSeconds(p.Keep), KeepSlowSeconds: inSeconds(p.KeepSlow), P50: quantile(w.first, 0.5), P95: quantile(w.first, 0.95), P99: quantile(w.first, 0.99), WholeP95: quantile(w.ends, 0.95),
		HeldShare: w.held().Hours() / w.hours(),
		spans:     w.spans, waits: w.waits, length: w.now,
	}
	cold := w.firstOf(func(k int) bool { return w.answers[k].cold })
	r.ColdHits, r.ColdP95 = len(cold), quantile(cold, 0.95)
	r.KeepDeclared = p.each && p.sleeps() && slices.ContainsFunc(w.cfg.Models, func(m Model) bool { return m.Declared != nil })
	if p.KeepSlow == p.Keep {
		r.KeepSlowSeconds = 0
	}
	if rises := w.starts + w.wakes; rises > 0 {
		r.HotShare = float64(w.wakes) / float64(rises)
	}
	return r
}

// firstOf returns the sorted times to first token of some requests of the trace.
func (w *world) firstOf(some func(k int) bool) (times []time.Duration) {
	for k, a := range w.answers {
		if some(k) {
			times = append(times, a.first)
		}
	}
	slices.Sort(times)
	return times
}

// quantile returns milliseconds; times are sorted.
func quantile(times []time.Duration, q float64) float64 {
	if len(times) == 0 {
		return 0
	}
	k := max(0, int(math.Ceil(q*float64(len(times))))-1)
	return math.Round(float64(times[k])/float64(time.Millisecond)*1000) / 1000
}

// Rows returns results as a table with a header.
func Rows(results []Result) [][]string {
	rows := [][]string{{"POLICY", "KEEP", "GPU-HOURS", "HOT SHARE", "TTFT P50", "TTFT P95", "TTFT P99", "REFUSED", "SWAPS", "STARTS", "WAKES"}}
	for _, r := range results {
		keep := sayKeep(r.KeepSeconds)
		if r.KeepDeclared {
			keep = "declared"
		}
		if r.KeepSlowSeconds != 0 {
			keep += ", " + sayKeep(r.KeepSlowSeconds)
		}
		rows = append(rows, []string{r.Name, keep, fmt.Sprintf("%.1f", r.GPUHours), fmt.Sprintf("%.1f %%", 100*r.HotShare),
			ms(r.P50), ms(r.P95), ms(r.P99), fmt.Sprint(r.Refused), fmt.Sprint(r.Swaps), fmt.Sprint(r.Starts), fmt.Sprint(r.Wakes)})
	}
	return rows
}

func ms(v float64) string {
	if v >= 10000 {
		return fmt.Sprintf("%.1f s", v/1000)
	}
	return fmt.Sprintf("%.0f ms", v)
}

// inSeconds returns -1 for Forever.
func inSeconds(d time.Duration) float64 {
	if d == Forever {
		return -1
	}
	return d.Seconds()
}

// sayKeep formats the result of inSeconds.
func sayKeep(s float64) string {
	if s < 0 {
		return "for ever"
	}
	d := time.Duration(s * float64(time.Second)).String() // 1h0m0s
	if strings.HasSuffix(d, "m0s") {
		d = strings.TrimSuffix(d, "0s")
	}
	if strings.HasSuffix(d, "h0m") {
		d = strings.TrimSuffix(d, "0m")
	}
	return d
}
