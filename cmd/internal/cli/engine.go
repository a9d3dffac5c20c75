package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/verb"
	"github.com/rouse-dev/rouse/engine/serve"
)

func engineCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "engine",
		Short: "Run the inference engine by itself",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(engineServeCommand(), engineWorkerCommand(), engineBenchCommand())
	return c
}

func engineServeCommand() *cobra.Command {
	cfg := serve.Config{Listen: "127.0.0.1:0", ConversationAge: 24 * time.Hour, ToolParser: "auto", Device: "cpu"}
	var exitWithParent bool
	c := &cobra.Command{
		Use:   "serve --model FILE|pico",
		Short: "Serve one GGUF model with the OpenAI API, on this host only",
		Long: `Serve one GGUF model with the OpenAI API, on a loopback port or a Unix socket.

When the model has generated its first token, one line on standard output says
where to connect:

    listening on http://127.0.0.1:41234
    listening on unix:/run/rouse/engine.sock

Logs go to standard error. Where the model's file can't be used the status is 65. SIGTERM and SIGINT let running requests finish first.`,
		Example: "  rouse engine serve --model pico\n  rouse engine serve --model qwen2.5-0.5b-q8_0.gguf --listen unix:/tmp/engine.sock --name qwen",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if exitWithParent {
				if err := serve.ExitWithParent(); err != nil {
					return err
				}
			}
			cfg.Log, cfg.Version = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil)), verb.Version()
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			return serve.Run(ctx, cfg, c.OutOrStdout())
		},
	}
	f := c.Flags()
	servingFlags(f, &cfg)
	f.BoolVar(&exitWithParent, "exit-with-parent", false, "end when the process that started this one ends (Linux)")
	if err := c.MarkFlagRequired("model"); err != nil {
		panic(err) // it is declared above
	}
	return c
}
