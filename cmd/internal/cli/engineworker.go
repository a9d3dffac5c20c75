package cli

import (
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/engine/worker"
)

// workerFlags adds the flags of `rouse engine serve` that say where the model is loaded.
func workerFlags(f *pflag.FlagSet, cfg *serve.Config) {
	f.StringVar((*string)(&cfg.Worker), "worker", "", `where the model lives: "inside" this process, in a "process" of its own that is replaced when it dies, or as its size says`)
	f.IntVar(&cfg.Shards, "shards", 0, "worker processes that share the model, each with its part of the rows and heads; 0 for one")
	f.StringVar(&cfg.Device, "device", "cpu", "what computes: cpu, or cuda, which needs Python with torch")
	f.StringVar(&cfg.Python, "python", "", "Python `interpreter` for --device cuda (default: python3)")
	f.BoolVar(&cfg.Sync, "sync", false, "wait for the output of a step before the next one is made")
}

// engineWorkerCommand is `rouse engine worker`, which the engine starts.
func engineWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Compute for an engine that is connected as file descriptor 3",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return worker.Main(c.Context(), worker.Build(slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))))
		},
	}
}
