package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/catalog"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/functions/fetch"
)

func pullCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "pull MODEL …",
		Short: "Fetch models, so that their first start doesn't have to",
		Long: `Fetch models into the cache ($ROUSE_CACHE) that all functions of this machine share, and say where they lie. A MODEL is what
rouse run takes: hf.co/ORG/NAME[:QUANT], ollama://NAME, https://…, oci://…, s3://…. It needs no server.

A fetch that was ended, by Ctrl-C or a lost connection, goes on where it was when the command is given again. Models
that Ollama has pulled already are used where they lie.`,
		Example: `  rouse pull hf.co/Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0
  rouse pull ollama://qwen2.5:0.5b`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			for _, ref := range refs {
				if err := pull(cmd, ref, quiet); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print where the model lies only")
	return cmd
}

func pull(cmd *cobra.Command, ref string, quiet bool) error {
	f, err := catalog.Resolve(ref, "rouse pull", catalog.StoreOf(os.Getenv), catalog.FindGPU)
	if err != nil {
		return err
	}
	out := render.Harmless(cmd.OutOrStdout())
	if !fetched(f.Runtime.Model) {
		if path := strings.TrimPrefix(f.Runtime.Model, "file://"); strings.HasPrefix(path, "/") {
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("%s: %w", ref, err)
			}
		}
		if !quiet {
			fmt.Fprintf(out, "%s is here already: %s\n", ref, render.Source(f))
			return nil
		}
		fmt.Fprintln(out, f.Runtime.Model)
		return nil
	}
	shown := cmd.ErrOrStderr()
	if quiet {
		shown = io.Discard
	}
	start := time.Now()
	m, came, err := fetchShown(cmd.Context(), shown, f.Runtime.Model, "", 0)
	if err != nil {
		return err
	}
	defer m.Release()
	path := m.Path
	if m.GGUF != "" {
		path = m.GGUF
	}
	switch {
	case quiet:
		fmt.Fprintln(out, path)
	case came:
		fmt.Fprintf(out, "%s fetched in %s: %s\nrun it:  %s run %s\n", m.Size, render.Rounded(time.Since(start)), path, program(), ref)
	default:
		fmt.Fprintf(out, "%s is here already: %s, %s\n", ref, path, m.Size)
	}
	return nil
}

func fetched(model string) bool {
	r, err := fetch.Parse(model)
	return err == nil && r.Scheme != "" && r.Scheme != "file"
}

// fetchShown fetches a model into the cache in dir, empty for the user's, and holds it. came: anything was fetched. Ctrl-C is an
// [ExitError].
func fetchShown(ctx context.Context, errs io.Writer, model, dir string, maxAge time.Duration) (m fetch.Model, came bool, err error) {
	cfg := fetch.Environment(os.Getenv)
	if cfg.MaxAge = maxAge; dir != "" {
		cfg.Dir = dir
	}
	show, again, end := showFetch(errs, base(model))
	cfg.Again = again
	cache, err := fetch.New(cfg)
	if err != nil {
		end()
		return m, false, err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	var got atomic.Bool // another goroutine may report
	m, err = cache.Fetch(ctx, model, func(p fetch.Progress) {
		got.Store(got.Load() || p.Rate > 0)
		show(p)
	})
	end()
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(errs, "interrupted: what has come is kept, and the same command goes on from there")
		return m, false, &ExitError{130}
	}
	return m, got.Load(), err
}

// Without a terminal, progress is printed for each tenth, and at intervals.
const (
	lineShare = 0.1
	lineEvery = 30 * time.Second
)

func showFetch(errs io.Writer, what string) (show func(fetch.Progress), again func(error), end func()) {
	if render.IsTerminal(errs) {
		var mu sync.Mutex // guards bar
		bar := render.NewBar(errs, &mu)
		draw := func(what string, share float64) {
			mu.Lock()
			defer mu.Unlock()
			bar.Draw(what, share)
		}
		draw("asking for "+what, 0)
		return func(p fetch.Progress) {
			what := base(p.File) + " " + render.Fetched(p.Done, p.Total, p.Rate)
			if left := render.Left(p.Done, p.Total, p.Rate); left > 0 {
				what += ", " + left.String() + " left"
			}
			draw(what, shareOf(p))
		}, func(err error) { draw("trying again: "+err.Error(), 0) }, bar.Clear
	}
	var once sync.Once
	last, said := time.Now(), 0.0
	return func(p fetch.Progress) {
			share := shareOf(p)
			if p.Done == 0 || p.Done >= p.Total && p.Total > 0 || share < said+lineShare && time.Since(last) < lineEvery {
				return
			}
			last, said = time.Now(), share
			fmt.Fprintf(errs, "fetching %s: %.0f%% (%s)\n", base(p.File), 100*share, render.Fetched(p.Done, p.Total, p.Rate))
		}, func(err error) {
			once.Do(func() { fmt.Fprintln(errs, "trying again:", render.Printable(err.Error())) })
		}, func() {}
}

func shareOf(p fetch.Progress) float64 {
	if p.Total <= 0 {
		return 0
	}
	return float64(p.Done) / float64(p.Total)
}

func base(name string) string { return render.Printable(path.Base(name)) }
