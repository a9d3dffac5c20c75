package cli

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/render"
	measure "github.com/rouse-dev/rouse/engine/bench"
	"github.com/rouse-dev/rouse/internal/flagset"
)

func engineBenchCommand() *cobra.Command {
	cfg := measure.Config{Reps: 5}
	c := &cobra.Command{
		Use:   "bench FILE|pico",
		Short: "Measure a GGUF model on this machine, beside llama.cpp where it is installed",
		Long: `Measure a GGUF model on this machine.

  pp256      a prompt of 256 tokens, what llama-bench calls pp256
  tg64       64 further tokens of one sequence, llama-bench's tg64
  tg64xB16   the same for 16 sequences in one batch, llama-batched-bench's tg
  engine     the whole engine with its worker process, 32 requests at once, and the
             same with the host's work after the step instead of beside it
  device     the engine on a simulated device: what the host costs, by itself

Where llama-bench and llama-batched-bench are on the PATH, or in the folder --peer,
they measure the same file with as many threads, in turns with this program.`,
		Example: "  rouse engine bench pico\n  rouse engine bench qwen2.5-0.5b-q8_0.gguf --threads 4 --output json",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			cfg.Path = args[0]
			report, err := measure.Run(ctx, cfg, func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) })
			if err != nil {
				return err
			}
			return render.Print(c, report, printBench)
		},
	}
	flagset.Add(c.Flags(), &cfg)
	render.Flag(c)
	return c
}

func printBench(out io.Writer, r *measure.Report) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "model\t%s (%s, %.0f MiB)\n", r.Model, r.Arch, float64(r.Bytes)/(1<<20))
	fmt.Fprintf(w, "kernels\t%s\n", r.CPU)
	fmt.Fprintf(w, "threads\t%d\n\n", r.Threads)
	header := "TEST\tROUSE"
	if slices.ContainsFunc(r.Results, func(x measure.Result) bool { return strings.HasSuffix(x.Test, "_llama.cpp") }) {
		header += "\t\tLLAMA.CPP\tRATIO"
	}
	fmt.Fprintln(w, header)
	for _, x := range r.Results {
		if strings.HasSuffix(x.Test, "_llama.cpp") || strings.HasSuffix(x.Test, "_ratio") {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s", x.Test, figure(x.Value), x.Unit)
		if theirs, ok := r.Value(x.Test + "_llama.cpp"); ok {
			ratio, _ := r.Value(x.Test + "_ratio")
			fmt.Fprintf(w, "\t%s\t%.2f", figure(theirs), ratio)
		}
		fmt.Fprintln(w)
	}
	err := w.Flush()
	if err == nil && r.PeerNote != "" {
		_, err = fmt.Fprintf(out, "\n%s\n", r.PeerNote)
	}
	return err
}

// figure formats three significant digits, or all before the point.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
