package cli

import (
	"context"
	"os"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/trace"
)

// export reads from the environment which wake the instance is started for, and where
// traces go to. What it returns ends the export.
func (f *flags) export() (end func()) {
	f.cfg.Trace, _ = api.ParseTrace(os.Getenv(api.EnvTrace))
	var err error
	if f.cfg.Traces, err = trace.FromEnvironment(os.Getenv, Version, f.cfg.Logger); err != nil {
		f.cfg.Logger.Warn("no traces are exported", "error", err)
	}
	if f.cfg.Traces == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = f.cfg.Traces.Run(ctx) // it only ends with ctx
	}()
	return func() {
		cancel()
		<-ended
	}
}
