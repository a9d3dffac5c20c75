package simulate

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Policy is what decides, and its setting. What is declared for a function ([Model.Declared]) comes before what is said here, except where Keep is
// given, which is for all; Rouse and the dual pods take notice of SleepAfter, Rouse of the rest.
type Policy struct {
	// Name is one of [All].
	Name string
	// Keep is how long what nobody needs stays: Rouse's and the dual pods' time awake before
	// the sleep, Knative's time before the last pod goes, Ollama's keep-alive. 0 takes the
	// policy's own default, [Forever] never lets go while nobody else wants the room.
	Keep time.Duration
	// KeepSlow takes Keep's place for models that don't wake within Quick, where there are
	// sleepers; 0 is Keep.
	KeepSlow, Quick time.Duration
	// UnloadAfter is how long a sleeper of Rouse stays, 0 until its memory is wanted.
	UnloadAfter time.Duration
	// NoPrewake has Rouse wake and start only for requests that are there.
	NoPrewake bool
	// Rehearse is [api.Function.Rehearse], for Rouse.
	Rehearse string
	// SleeperLimit bounds the sleepers on a device, for "random". 0 is 2, as in the chart of its source.
	SleeperLimit int

	each bool // Keep is nobody's wish
}

// keep is how long m stays.
func (p Policy) keep(m *Model) time.Duration {
	if p.each && m.Declared != nil {
		return m.Declared.SleepAfter
	}
	if p.KeepSlow > 0 && m.Wake[api.Level1] > p.Quick {
		return p.KeepSlow
	}
	return p.Keep
}

// withDefaults fills in the keep.
func (p Policy) withDefaults() Policy {
	if p.Keep == 0 {
		p.Keep, p.each = defaultKeep[p.Name], true
	}
	return p
}

// Forever is a [Policy.Keep] that never ends.
const Forever time.Duration = math.MaxInt64

// Names are the policies that are shown unless others are asked for, in their order; Peers are more, and All is both.
var (
	Names = []string{"rouse", "knative", "keepalive", "random"}
	Peers = []string{"tokens", "prewarm", "planner"}
	All   = slices.Concat(Names, Peers)
)

// controllers make them.
var controllers = map[string]func(*world, Policy) controller{
	"rouse": newRouse, "knative": newKnative, "keepalive": newKeepalive, "random": newRandom,
	"tokens": newTokens, "prewarm": newPrewarm, "planner": newPlanner,
}

// defaultKeep is what policies do where nobody says otherwise.
var defaultKeep = map[string]time.Duration{
	"rouse":     time.Minute,     // api.DefaultSleepAfter
	"knative":   time.Minute,     // stable-window; scale-to-zero-pod-retention-period is 0
	"keepalive": 5 * time.Minute, // OLLAMA_KEEP_ALIVE
	"random":    time.Minute,     // the same as ours: its source leaves it to the scaler of the requesters
	"tokens":    time.Minute,     // the same: its source has a pool that is held for ever
	"prewarm":   time.Minute,     // the same
	"planner":   time.Minute,     // the same
}

// Result is what one policy made of a trace.
type Result struct {
	Name string `json:"name"`
	// GPUHours is the time for which GPUs were held; see the package's comment.
	GPUHours float64 `json:"gpu_hours"`
	// HotShare is the share of rises that woke a sleeper instead of loading the model anew; 0 if nothing rose.
	HotShare float64 `json:"hot_share"`
	// Times from a request's arrival to its first token. A refused one counts with Config.Hold.
	P50 float64 `json:"ttft_p50_ms"`
	P95 float64 `json:"ttft_p95_ms"`
	// ColdHits is how many requests found no instance of their function awake.
	ColdHits int `json:"cold_hits"`
	// Refused is how many requests were refused.
	Refused int `json:"refused"`
	// Broken is how many requests ended without all of their answer, because a node left.
	Broken int `json:"broken,omitempty"`
	// Swaps is how often an instance gave way to another function.
	Swaps int `json:"swaps"`

	P99 float64 `json:"ttft_p99_ms"`
	// WholeP95 is of the times from arrival to last token, of those that were served.
	WholeP95 float64 `json:"whole_p95_ms"`
	// Cold is how many requests found no instance awake, ColdP95 their time to first token.
	Cold    int     `json:"cold"`
	ColdP95 float64 `json:"cold_ttft_p95_ms"`
	Served  int     `json:"served"`
	// Starts and Wakes count rises.
	Starts int `json:"starts"`
	Wakes  int `json:"wakes"`
	// KeepSeconds is the knob that it ran with, -1 for for ever; KeepSlowSeconds is that of
	// models that take longer to wake than the target, where it was another one.
	KeepSeconds     float64 `json:"keep_seconds"`
	KeepSlowSeconds float64 `json:"keep_slow_seconds,omitempty"`
	// KeepDeclared says that functions stayed as long as is declared for them, and KeepSeconds only where nothing is.
	KeepDeclared bool `json:"keep_declared,omitempty"`
	// SleeperGiBHours is the GPU memory that sleepers kept, times the time.
	SleeperGiBHours float64 `json:"sleeper_gib_hours"`
	// HeldShare is GPUHours over the hours that there were.
	HeldShare float64 `json:"held_share"`
	// TargetMet says whether P95 is at most the target that was searched for; true if there was none.
	TargetMet bool `json:"target_met"`

	spans  []span
	waits  []mark
	length time.Duration
}

// Run replays a trace under a policy. horizon is how long the world lasts at
// least; it goes on until every request has ended, or ctx. An error says what is wrong with
// the input, or that the policy has promised memory that there is not.
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
		for _, u := range f.units { // what is still there is counted until now
			w.become(u, u.state)
		}
	}
	slices.Sort(w.first)
	slices.Sort(w.ends)
	r := Result{
		Name: p.Name, GPUHours: w.held().Hours(), ColdHits: w.cold, Refused: w.refused, Served: w.served, Broken: w.broken, Swaps: w.swaps,
		Starts: w.starts, Wakes: w.wakes, SleeperGiBHours: w.sleepers, TargetMet: true,
		KeepSeconds: inSeconds(p.Keep), KeepSlowSeconds: inSeconds(p.KeepSlow), P50: quantile(w.first, 0.5), P95: quantile(w.first, 0.95), P99: quantile(w.first, 0.99), WholeP95: quantile(w.ends, 0.95),
		HeldShare: w.held().Hours() / w.hours(),
		spans:     w.spans, waits: w.waits, length: w.now,
	}
	cold := w.firstOf(func(k int) bool { return w.answers[k].cold })
	r.Cold, r.ColdP95 = len(cold), quantile(cold, 0.95)
	r.KeepDeclared = p.each && p.sleeps() && slices.ContainsFunc(w.cfg.Models, func(m Model) bool { return m.Declared != nil })
	if p.KeepSlow == p.Keep {
		r.KeepSlowSeconds = 0
	}
	if rises := w.starts + w.wakes; rises > 0 {
		r.HotShare = float64(w.wakes) / float64(rises)
	}
	return r
}

// firstOf are the times to first token of some requests of the trace, sorted.
func (w *world) firstOf(some func(k int) bool) (times []time.Duration) {
	for k, a := range w.answers {
		if some(k) {
			times = append(times, a.first)
		}
	}
	slices.Sort(times)
	return times
}

// quantile is the least time that q of times, which are sorted, don't exceed, in milliseconds.
func quantile(times []time.Duration, q float64) float64 {
	if len(times) == 0 {
		return 0
	}
	k := max(0, int(math.Ceil(q*float64(len(times))))-1)
	return math.Round(float64(times[k])/float64(time.Millisecond)*1000) / 1000
}

// Rows are results as a table, the head first.
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

// ms prints milliseconds as people say them.
func ms(v float64) string {
	if v >= 10000 {
		return fmt.Sprintf("%.1f s", v/1000)
	}
	return fmt.Sprintf("%.0f ms", v)
}

// inSeconds is d, -1 for for ever.
func inSeconds(d time.Duration) float64 {
	if d == Forever {
		return -1
	}
	return d.Seconds()
}

// sayKeep prints what inSeconds made.
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

// Write writes a trace as CSV, in Rouse's own shape.
func (t Trace) Write(w io.Writer) error { return writeTrace(w, t) }
