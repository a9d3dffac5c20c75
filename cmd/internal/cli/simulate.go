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
	"github.com/rouse-dev/rouse/internal/flagset"
)

type shapeFlags struct {
	Shape simulate.Shape
	Hours float64 `flag:"hours" help:"length of the trace; of one that is read, the <hours> from its beginning"`
}

// add adds the flags of all, which contains s.
func (s *shapeFlags) add(cmd *cobra.Command, all any) {
	f := cmd.Flags()
	s.Hours, s.Shape = 24, simulate.Shape{Functions: 12, Load: simulate.Mix, Zipf: 1}
	flagset.Add(f, all)
	f.Uint64Var(&s.Shape.Seed, "seed", 1, "the same `seed` gives the same trace and the same result")
	_ = cmd.RegisterFlagCompletionFunc("load", cobra.FixedCompletions([]string{"mix", "bursty", "diurnal", "steady", "cron", "office"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
}

func (s *shapeFlags) length() (time.Duration, error) {
	if !(s.Hours > 0 && s.Hours <= 8784) {
		return 0, fmt.Errorf("--hours %g: want more than 0 and at most 8784, a year", s.Hours)
	}
	return time.Duration(s.Hours * float64(time.Hour)), nil
}

func (s *shapeFlags) generate() (simulate.Trace, error) {
	var err error
	if s.Shape.Length, err = s.length(); err != nil {
		return nil, err
	}
	shape := s.Shape
	if shape.Zipf == 0 { // 0 is a default in a Shape
		shape.Zipf = -1
	}
	return simulate.Generate(shape)
}

type simulateFlags struct {
	shapeFlags
	Config   simulate.Config
	Policy   simulate.Policy // what all policies have
	Trace    string          `flag:"trace" help:"<file> with the trace; - is standard input"`
	Weights  []string        `flag:"weights" help:"<size> of a model's weights; repeat it, models take them in turn (default: 15Gi, 15Gi, 28Gi, 62Gi)"`
	Policies []string        `flag:"policy" help:"one of the policies above (repeatable; default: the first four)"`
	Target   time.Duration   `flag:"target-p95" help:"set each policy's knob so that the p95 of the time to first token is at most this"`
	Churn    time.Duration   `flag:"churn" help:"about once in this time a machine leaves, and ten minutes later another one comes, without models' files"`
	SVG      string          `flag:"svg" help:"write a picture to this <file>"`
}

func simulateCommand() *cobra.Command {
	s := simulateFlags{
		Config: simulate.Config{Devices: 4, Nodes: 1, MaxScale: 4, Hold: 5 * time.Minute},
		Policy: simulate.Policy{Rehearse: api.RehearseMeasured, Suspend: api.SuspendAuto, SleeperLimit: 2},
	}
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

Sleepers of random and planner stay bound to their GPU, at level 1: their sources have no
way to take a process off a GPU. Those of rouse (--suspend), tokens and prewarm leave it.

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
	s.add(cmd, &s)
	addParsed(f, &s.Config.DeviceMemory, "device-memory", "80Gi", "memory of each GPU", amount[api.Bytes])
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
	s.add(cmd, &s)
	return cmd
}

func (s *simulateFlags) run(cmd *cobra.Command) error {
	trace, horizon, err := s.read(cmd)
	if err != nil {
		return err
	}
	if s.Churn > 0 && s.Config.Nodes > 1 {
		s.Config.Changes = simulate.Churn(s.Config.Nodes, horizon, s.Churn, away, s.Shape.Seed)
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
	if s.SVG != "" {
		var picture bytes.Buffer
		if err := simulate.SVG(&picture, s.Config.WithDefaults(trace), results); err != nil {
			return err
		}
		if err := os.WriteFile(s.SVG, picture.Bytes(), 0o644); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	out := map[string][]simulate.Result{"policies": results}
	return render.Print(cmd, out, func(w io.Writer, _ map[string][]simulate.Result) error {
		fmt.Fprintf(w, "%s for %s in %s, on %s of %s\n\n", count(len(trace), "request"), count(len(trace.Models()), "model"),
			render.Rounded(horizon), count(s.Config.Devices, "GPU"), count(s.Config.Nodes, "machine"))
		if err := render.Table(w, simulate.Rows(results)); err != nil {
			return err
		}
		for _, r := range results {
			if !r.TargetMet {
				fmt.Fprintf(w, "\n%s holds no p95 of %s here: more --devices, or a higher --target-p95\n", r.Name, s.Target)
			}
		}
		return nil
	})
}

// read also returns the trace's duration.
func (s *simulateFlags) read(cmd *cobra.Command) (simulate.Trace, time.Duration, error) {
	length, err := s.length()
	if err != nil {
		return nil, 0, err
	}
	if s.Trace == "" {
		t, err := s.generate()
		return t, length, err
	}
	in, name := cmd.InOrStdin(), "standard input"
	if s.Trace != "-" {
		file, err := os.Open(s.Trace)
		if err != nil {
			return nil, 0, fmt.Errorf("--trace: %w", err)
		}
		defer file.Close()
		in, name = file, s.Trace
	}
	t, err := simulate.ReadTrace(in, s.Shape.Functions)
	if err != nil {
		return nil, 0, fmt.Errorf("--trace %s: %w", name, err)
	}
	if cmd.Flags().Changed("hours") {
		k, _ := slices.BinarySearchFunc(t, length, func(a simulate.Arrival, at time.Duration) int { return int(min(1, max(-1, a.At-at))) })
		return t[:k], length, nil
	}
	return t, t.Length(), nil
}

// configure returns the policies to run.
func (s *simulateFlags) configure(trace simulate.Trace) ([]string, error) {
	switch p := s.Policy; {
	case s.Config.Hold <= 0 || s.Config.Hold > mostHold:
		return nil, fmt.Errorf("--hold %s: want more than 0 and at most %s", s.Config.Hold, mostHold)
	case p.Keep > 0 && s.Target > 0:
		return nil, errors.New("--keep and --target-p95: give one of them; the target is held by searching for what to keep")
	case s.Churn > 0 && (s.Churn < time.Minute || s.Config.Nodes < 2):
		return nil, fmt.Errorf("--churn %s: want a minute or more, and --nodes of 2 or more", s.Churn)
	}
	if err := cmp.Or(s.Policy.Validate(), knownPolicies(s.Policies)); err != nil {
		return nil, err
	}
	var policies []string
	for _, p := range s.Policies {
		if !slices.Contains(policies, p) {
			policies = append(policies, p)
		}
	}
	if len(policies) == 0 {
		policies = simulate.Names
	}
	s.Config.Seed, s.Config.Record, s.Config.HostMemory = s.Shape.Seed, s.SVG != "", api.TiB
	for k, name := range trace.Models() {
		if len(s.Weights) == 0 {
			break
		}
		value := s.Weights[k%len(s.Weights)]
		v, err := amount[api.Bytes](value)
		if err != nil {
			return nil, fmt.Errorf("--weights %s: %w", value, err)
		}
		s.Config.Models = append(s.Config.Models, s.Config.NewModel(k, name, v))
	}
	return policies, s.Config.WithDefaults(trace).Validate() // once, not for each policy
}

// away is the time until a lost machine is replaced.
const away = 10 * time.Minute

// mostHold is also the wait of a request that is never served.
const mostHold = 24 * time.Hour

func (s *simulateFlags) simulate(ctx context.Context, trace simulate.Trace, horizon time.Duration, policies []string) ([]simulate.Result, error) {
	results, errs := make([]simulate.Result, len(policies)), make([]error, len(policies))
	var all sync.WaitGroup
	for k, name := range policies {
		all.Go(func() {
			p := s.Policy
			p.Name = name
			if s.Target > 0 {
				results[k], errs[k] = simulate.Search(ctx, s.Config, trace, horizon, p, s.Target)
				return
			}
			results[k], errs[k] = simulate.Run(ctx, s.Config, trace, horizon, p)
		})
	}
	all.Wait()
	return results, errors.Join(errs...)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
