package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/flagset"
)

type benchResult struct {
	Function      string             `json:"function"`
	Requests      int                `json:"requests"`
	Concurrency   int                `json:"concurrency"`
	Failed        int                `json:"failed"`
	Fallback      int                `json:"fallback,omitempty"` // another model answered
	FirstError    string             `json:"firstError,omitempty"`
	Seconds       float64            `json:"seconds"`
	RequestsPerS  float64            `json:"requestsPerSecond"`
	TokensPerS    float64            `json:"tokensPerSecond"`
	FirstTokenMS  map[string]float64 `json:"firstTokenMs"`
	TotalMS       map[string]float64 `json:"totalMs"`
	HoldMS        map[string]float64 `json:"holdMs"`
	tokens        int
	first, totals []time.Duration
	holds         []time.Duration
}

func benchCommand() *cobra.Command {
	f := struct {
		Requests    int `flag:"requests,n" least:"1" help:"requests in all"`
		Concurrency int `flag:"concurrency,c" least:"1" help:"requests at a time"`
		MaxTokens   int `flag:"max-tokens" least:"1" help:"most tokens of an answer"`
	}{100, 4, 32}
	cmd := &cobra.Command{
		Use:               "bench NAME",
		Short:             "Measure a function under load",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: functionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, door, err := dialDoor(cmd)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			ask := func() (measured, error) {
				return c.chat(ctx, door, chatOptions{model: args[0], maxTokens: f.MaxTokens}, []message{{"user", "echo hello world"}}, chatEvents{})
			}
			r := bench(ctx, ask, f.Requests, f.Concurrency, progress(cmd.ErrOrStderr(), f.Requests))
			r.Function = args[0]
			switch {
			case r.Requests == 0: // interrupted before the first answer
				return &ExitError{130}
			case r.Failed == r.Requests:
				return fmt.Errorf("all %d requests failed, the first with: %s", r.Requests, r.FirstError)
			}
			if err := render.Print(cmd, r, printResult); err != nil {
				return err
			}
			if r.Failed > 0 {
				return fmt.Errorf("%d of %d requests failed, the first with: %s", r.Failed, r.Requests, r.FirstError)
			}
			return nil
		},
	}
	flagset.Add(cmd.Flags(), &f)
	render.Flag(cmd)
	return cmd
}

func progress(w io.Writer, n int) func() {
	if !render.IsTerminal(w) {
		return func() {}
	}
	bar := progressbar.NewOptions(n, progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(30), progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	return func() { _ = bar.Add(1) }
}

func bench(ctx context.Context, ask func() (measured, error), n, atOnce int, tick func()) *benchResult {
	r := &benchResult{Concurrency: atOnce}
	var mu sync.Mutex // guards r and calls of tick
	var all errgroup.Group
	all.SetLimit(atOnce)
	start := time.Now()
	for range n {
		all.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			m, err := ask()
			if err != nil && ctx.Err() != nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			r.add(m, err)
			tick()
			return nil
		})
	}
	_ = all.Wait()
	r.finish(time.Since(start))
	return r
}

func (r *benchResult) add(m measured, err error) {
	r.Requests++
	if err != nil {
		if r.Failed == 0 {
			r.FirstError = err.Error()
		}
		r.Failed++
		return
	}
	if m.fallback != "" {
		r.Fallback++
	}
	r.tokens += m.tokens
	r.first = append(r.first, m.firstToken)
	r.totals = append(r.totals, m.total)
	r.holds = append(r.holds, m.hold)
}

func (r *benchResult) finish(took time.Duration) {
	r.Seconds = took.Seconds()
	r.RequestsPerS = float64(r.Requests-r.Failed) / r.Seconds
	r.TokensPerS = float64(r.tokens) / r.Seconds
	r.FirstTokenMS, r.TotalMS, r.HoldMS = quantiles(r.first), quantiles(r.totals), quantiles(r.holds)
}

// quantiles are in milliseconds.
func quantiles(ds []time.Duration) map[string]float64 {
	if len(ds) == 0 {
		return nil
	}
	slices.Sort(ds)
	at := func(q float64) float64 {
		return float64(ds[min(len(ds)-1, int(q*float64(len(ds))))]) / float64(time.Millisecond)
	}
	return map[string]float64{"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": at(1)}
}

func printResult(w io.Writer, r *benchResult) error {
	rows := render.Rows{{"", "P50", "P95", "P99", "MAX"}}
	for _, q := range []struct {
		name string
		ms   map[string]float64
	}{{"first token", r.FirstTokenMS}, {"whole answer", r.TotalMS}, {"held", r.HoldMS}} {
		row := []any{q.name}
		for _, p := range []string{"p50", "p95", "p99", "max"} {
			row = append(row, fmt.Sprintf("%.1f ms", q.ms[p]))
		}
		rows.Add(row...)
	}
	if err := render.Table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d requests, %d at a time, %d failed, in %.2f s: %.1f requests/s, %.0f tokens/s\n",
		r.Requests, r.Concurrency, r.Failed, r.Seconds, r.RequestsPerS, r.TokensPerS)
	if r.Fallback > 0 {
		fmt.Fprintf(w, "%d were answered by a fallback of the function\n", r.Fallback)
	}
	return err
}
