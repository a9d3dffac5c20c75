package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/simulate"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

// shapeFlags are the flags of a generated trace.
type shapeFlags struct {
	shape simulate.Shape
	hours float64
}

func (s *shapeFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&s.shape.Functions, "functions", 12, "number of models")
	f.Float64Var(&s.hours, "hours", 24, "length of the trace; of one that is read, the `hours` from its beginning")
	f.Uint64Var(&s.shape.Seed, "seed", 1, "the same `seed` gives the same trace and the same result")
	f.StringVar((*string)(&s.shape.Load), "load", string(simulate.Mix), "how requests come: mix, bursty, diurnal, steady, cron or office")
	f.Float64Var(&s.shape.Rate, "rate", 0, "requests in an hour, of all models together (default: 50 for each)")
	f.Float64Var(&s.shape.Zipf, "zipf", 1, "the kth model gets a share of 1/k^`s`; 0 spreads them evenly")
	_ = cmd.RegisterFlagCompletionFunc("load", cobra.FixedCompletions([]string{"mix", "bursty", "diurnal", "steady", "cron", "office"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
}

// length is --hours.
func (s *shapeFlags) length() (time.Duration, error) {
	if !(s.hours > 0 && s.hours <= 8784) {
		return 0, fmt.Errorf("--hours %g: want more than 0 and at most 8784, a year", s.hours)
	}
	return time.Duration(s.hours * float64(time.Hour)), nil
}

// generate generates the trace according to the flags.
func (s *shapeFlags) generate() (simulate.Trace, error) {
	var err error
	if s.shape.Length, err = s.length(); err != nil {
		return nil, err
	}
	shape := s.shape
	switch {
	case shape.Functions < 1: // 0 is a default in a Shape
		return nil, fmt.Errorf("--functions %d: want 1 or more", shape.Functions)
	case shape.Rate < 0:
		return nil, fmt.Errorf("--rate %g: want 0 or more", shape.Rate)
	case shape.Zipf == 0:
		shape.Zipf = -1
	}
	return simulate.Generate(shape)
}

// simulateFlags are the flags of a simulation.
type simulateFlags struct {
	shapeFlags
	cfg           simulate.Config
	policy        simulate.Policy // what all policies have
	trace, svg    string
	weights       []string
	policies      []string
	target, churn time.Duration
}

func simulateCommand() *cobra.Command {
	var s simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Replay a trace against policies, and compare what they cost",
		Long: `Replay a trace of requests against models on GPUs in virtual time, once for each
policy, and print GPU-hours, the share of hot starts, times to first token, refusals
and swaps side by side:

  rouse       the decision code of this program
  knative     stock Knative: the concurrency rule of its autoscaler, a GPU for each pod
  keepalive   Ollama: load on demand, unload what was used longest ago
  random      llm-d's dual pods: GPUs are picked without knowing who sleeps where

and where they are asked for with --policy:

  tokens      Aegaeon: models take turns on GPUs, between two tokens
  prewarm     WarmServe: the weights of models that are foreseen to be wanted are on idle GPUs
  planner     Logos: a planner reassigns memory every ten seconds

Nothing is started and nothing is asked: no server has to run. GPU-hours are the
time for which GPUs are held by instances that are awake, rise, drain or go to
sleep. With --target-p95 the knob of each policy (how long what is idle stays) is
set so that it holds the target with the fewest GPU-hours; otherwise it is --keep,
or the policy's own default.

A trace is CSV with the header time,model,prompt_tokens,output_tokens, or one of the
public ones: the Azure LLM inference traces and BurstGPT. Without --trace one is
generated.`,
		Example: `  rouse simulate
  rouse simulate --functions 100 --devices 16 --nodes 2 --policy rouse --policy random
  rouse simulate --devices 12 --target-p95 5s --svg simulate.svg
  rouse simulate --trace AzureLLMInferenceTrace_conv.csv --functions 6 --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	s.add(cmd)
	f.StringVar(&s.trace, "trace", "", "`file` with the trace; - is standard input")
	f.IntVar(&s.cfg.Devices, "devices", 4, "number of GPUs")
	f.IntVar(&s.cfg.Nodes, "nodes", 1, "number of machines that they are in")
	addParsed(f, &s.cfg.DeviceMemory, "device-memory", "80Gi", "memory of each GPU", amount[api.Bytes])
	f.StringArrayVar(&s.weights, "weights", nil, "`size` of a model's weights; repeat it, models take them in turn (default: 15Gi, 15Gi, 28Gi, 62Gi)")
	f.IntVar(&s.cfg.MaxScale, "max-scale", 4, "most instances of a model")
	f.DurationVar(&s.cfg.Hold, "hold", 5*time.Minute, "how long a request may wait before it is refused")
	f.StringArrayVar(&s.policies, "policy", nil, "one of the policies above (repeatable; default: the first four)")
	f.DurationVar(&s.policy.Keep, "keep", 0, "how long what is idle stays, for every policy (default: the policy's own)")
	f.DurationVar(&s.target, "target-p95", 0, "set each policy's knob so that the p95 of the time to first token is at most this")
	f.DurationVar(&s.policy.UnloadAfter, "unload-after", 0, "how long a sleeper stays, for rouse (default: until its memory is wanted)")
	f.BoolVar(&s.policy.NoPrewake, "no-prewake", false, "wake and start only for requests that are there, for rouse")
	f.BoolVar(&s.cfg.Pinned, "pinned-sleep", false, "the first sleep of a process is slow and others are quick, as published for vLLM with pinned host memory")
	f.BoolVar(&s.cfg.SlowSleep, "slow-sleep", false, "every second model takes 10 s and 0.5 s a GiB for each sleep")
	f.BoolVar(&s.cfg.Shared, "share-gpus", false, "models take what they need of a GPU, so that several are awake on one (default: nine tenths of it)")
	f.DurationVar(&s.churn, "churn", 0, "about once in this time a machine leaves, and ten minutes later another one comes, without models' files")
	f.StringVar(&s.policy.Rehearse, "rehearse", api.RehearseMeasured, "whether first sleeps are rehearsed, for rouse: measured, always or never")
	f.StringVar(&s.policy.Suspend, "suspend", api.SuspendAuto, "whether a sleeper's process is taken off its GPU, for rouse: auto (where others need the memory), on or off")
	f.IntVar(&s.policy.SleeperLimit, "sleeper-limit", 2, "most sleepers on a GPU, for random")
	f.StringVar(&s.svg, "svg", "", "write a picture to this `file`")
	_ = cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(simulate.All, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
	render.Flag(cmd)
	cmd.AddCommand(generateCommand())
	return cmd
}

func generateCommand() *cobra.Command {
	var s shapeFlags
	cmd := &cobra.Command{
		Use:     "generate",
		Short:   "Print a trace for rouse simulate",
		Example: "  rouse simulate generate --functions 100 --load bursty > trace.csv\n  rouse simulate --trace trace.csv",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := s.generate()
			if err != nil {
				return err
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			if err := t.Write(w); err != nil {
				return fmt.Errorf("write the trace: %w", err)
			}
			return w.Flush()
		},
	}
	s.add(cmd)
	return cmd
}

// run is the command.
func (s *simulateFlags) run(cmd *cobra.Command) error {
	trace, horizon, err := s.read(cmd)
	if err != nil {
		return err
	}
	if s.churn > 0 && s.cfg.Nodes > 1 {
		s.cfg.Changes = simulate.Churn(s.cfg.Nodes, horizon, s.churn, away, s.shape.Seed)
	}
	policies, err := s.configure(trace)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt) // only now: generating a trace ignores contexts
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	results, err := s.simulate(ctx, trace, horizon, policies)
	if err != nil {
		return err
	}
	if s.svg != "" {
		var picture bytes.Buffer
		if err := simulate.SVG(&picture, s.cfg.WithDefaults(trace), results); err != nil {
			return err
		}
		if err := os.WriteFile(s.svg, picture.Bytes(), 0o644); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	out := map[string][]simulate.Result{"policies": results}
	return render.Print(cmd, out, func(w io.Writer, _ map[string][]simulate.Result) error {
		fmt.Fprintf(w, "%s for %s in %s, on %s of %s\n\n", count(len(trace), "request"), count(len(trace.Models()), "model"),
			render.Rounded(horizon), count(s.cfg.Devices, "GPU"), count(s.cfg.Nodes, "machine"))
		if err := render.Table(w, simulate.Rows(results)); err != nil {
			return err
		}
		for _, r := range results {
			if !r.TargetMet {
				fmt.Fprintf(w, "\n%s holds no p95 of %s here: more --devices, or a higher --target-p95\n", r.Name, s.target)
			}
		}
		return nil
	})
}

// read reads or generates the trace, and returns its duration.
func (s *simulateFlags) read(cmd *cobra.Command) (simulate.Trace, time.Duration, error) {
	length, err := s.length()
	if err != nil {
		return nil, 0, err
	}
	if s.trace == "" {
		t, err := s.generate()
		return t, length, err
	}
	if s.shape.Functions < 1 {
		return nil, 0, fmt.Errorf("--functions %d: want 1 or more", s.shape.Functions)
	}
	in, name := cmd.InOrStdin(), "standard input"
	if s.trace != "-" {
		file, err := os.Open(s.trace)
		if err != nil {
			return nil, 0, fmt.Errorf("--trace: %w", err)
		}
		defer file.Close()
		in, name = file, s.trace
	}
	t, err := simulate.ReadTrace(in, s.shape.Functions)
	if err != nil {
		return nil, 0, fmt.Errorf("--trace %s: %w", name, err)
	}
	if cmd.Flags().Changed("hours") {
		k, _ := slices.BinarySearchFunc(t, length, func(a simulate.Arrival, at time.Duration) int { return int(min(1, max(-1, a.At-at))) })
		return t[:k], length, nil
	}
	return t, t.Length(), nil
}

// configure configures the world and returns the policies to run.
func (s *simulateFlags) configure(trace simulate.Trace) ([]string, error) {
	switch p := s.policy; {
	case s.cfg.Devices < 1 || s.cfg.Nodes < 1 || s.cfg.MaxScale < 1:
		return nil, errors.New("--devices, --nodes and --max-scale: want 1 or more")
	case p.Keep < 0 || s.target < 0 || p.UnloadAfter < 0:
		return nil, errors.New("--keep, --unload-after and --target-p95: want 0 or more")
	case s.cfg.Hold <= 0 || s.cfg.Hold > mostHold:
		return nil, fmt.Errorf("--hold %s: want more than 0 and at most %s", s.cfg.Hold, mostHold)
	case p.Keep > 0 && s.target > 0:
		return nil, errors.New("--keep and --target-p95: give one of them; the target is held by searching for what to keep")
	case s.churn < 0 || s.churn > 0 && (s.churn < time.Minute || s.cfg.Nodes < 2):
		return nil, fmt.Errorf("--churn %s: want a minute or more, and --nodes of 2 or more", s.churn)
	case p.SleeperLimit < 1:
		return nil, fmt.Errorf("--sleeper-limit %d: want 1 or more", p.SleeperLimit)
	}
	if err := cmp.Or(s.policy.Validate(), knownPolicies(s.policies)); err != nil {
		return nil, err
	}
	var policies []string
	for _, p := range s.policies {
		if !slices.Contains(policies, p) {
			policies = append(policies, p)
		}
	}
	if len(policies) == 0 {
		policies = simulate.Names
	}
	s.cfg.Seed, s.cfg.Record, s.cfg.HostMemory = s.shape.Seed, s.svg != "", api.TiB
	for k, name := range trace.Models() {
		if len(s.weights) == 0 {
			break
		}
		value := s.weights[k%len(s.weights)]
		v, err := amount[api.Bytes](value)
		if err != nil {
			return nil, fmt.Errorf("--weights %s: %w", value, err)
		}
		s.cfg.Models = append(s.cfg.Models, s.cfg.NewModel(k, name, v))
	}
	return policies, s.cfg.WithDefaults(trace).Validate() // once, not for each policy
}

// away is the time until a lost machine is replaced.
const away = 10 * time.Minute

// mostHold is the longest wait of a request in virtual time: one that is never served counts as that.
const mostHold = 24 * time.Hour

// simulate runs the policies concurrently, and returns their results in the given order.
func (s *simulateFlags) simulate(ctx context.Context, trace simulate.Trace, horizon time.Duration, policies []string) ([]simulate.Result, error) {
	results, errs := make([]simulate.Result, len(policies)), make([]error, len(policies))
	var all sync.WaitGroup
	for k, name := range policies {
		all.Go(func() {
			p := s.policy
			p.Name = name
			if s.target > 0 {
				results[k], errs[k] = simulate.Search(ctx, s.cfg, trace, horizon, p, s.target)
				return
			}
			results[k], errs[k] = simulate.Run(ctx, s.cfg, trace, horizon, p)
		})
	}
	all.Wait()
	return results, errors.Join(errs...)
}

// count formats a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
