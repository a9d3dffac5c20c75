package cli

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
	measure "github.com/rouse-dev/rouse/engine/bench"
	"github.com/rouse-dev/rouse/engine/serve"
)

// TestTheEngineRepeatsTurns: the engine knows nothing of package api, and repeats its header all the same.
func TestTheEngineRepeatsTurns(t *testing.T) {
	if serve.HeaderTurn != api.HeaderTurn {
		t.Errorf("the engine repeats %s, and is sent %s", serve.HeaderTurn, api.HeaderTurn)
	}
}

func TestEngineServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	var logs strings.Builder
	c := engineCommand()
	c.SetArgs([]string{"serve", "--model", "pico", "--name", "tiny"})
	c.SetOut(in)
	c.SetErr(&logs)
	done := make(chan error, 1)
	go func() {
		err := c.ExecuteContext(ctx)
		in.CloseWithError(io.EOF)
		done <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no announcement: %v", <-done)
	}
	address := strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	resp, err := http.Get(address + "/v1/models/tiny")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("GET %s/v1/models/tiny: status %d", address, resp.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
	if !strings.Contains(logs.String(), "msg=ready") {
		t.Errorf("logs: %s", logs.String())
	}
}

func TestEngineServeRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                           `required flag(s) "model" not set`,
		"--model pico extra":         "unknown command",
		"--model pico --listen :80":  "this host only",
		"--model /no/such/file.gguf": "/no/such/file.gguf",
	} {
		c := engineCommand()
		c.SetArgs(append([]string{"serve"}, strings.Fields(args)...))
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		err := c.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("serve %s: %v, want an error with %q", args, err, want)
		}
		if got := Status(err) == api.ExitModel; got != strings.Contains(args, "file.gguf") {
			t.Errorf("serve %s: status %d", args, Status(err))
		}
	}
}

// TestBenchTable wants columns of llama.cpp only where it was measured.
func TestBenchTable(t *testing.T) {
	r := &measure.Report{Model: "pico", Results: []measure.Result{{Test: "pp256", Value: 1234, Unit: "tokens/s"}}}
	table := func() string {
		var b strings.Builder
		if err := printBench(&b, r); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got, want := table(), "TEST   ROUSE\npp256  1234  tokens/s\n"; !strings.HasSuffix(got, want) {
		t.Errorf("without llama.cpp:\n%s\nwant the end\n%s", got, want)
	}
	r.Results = append(r.Results, measure.Result{Test: "pp256_llama.cpp", Value: 617, Unit: "tokens/s"}, measure.Result{Test: "pp256_ratio", Value: 2})
	if got, want := table(), "TEST   ROUSE            LLAMA.CPP  RATIO\npp256  1234   tokens/s  617        2.00\n"; !strings.HasSuffix(got, want) {
		t.Errorf("with llama.cpp:\n%s\nwant the end\n%s", got, want)
	}
}

// TestEveryFlagIsJudged: each flag of the engine is harmless in the manifest of a front door elsewhere, or is not taken from one.
func TestEveryFlagIsJudged(t *testing.T) {
	operators := strings.Fields("conversation-folder exit-with-parent listen lora max-body mmproj model name python tile-dir tile-limit")
	harmless := config.Harmless(api.RuntimeEngine)
	serve, _, err := engineCommand().Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	serve.Flags().VisitAll(func(f *pflag.Flag) {
		known = append(known, f.Name)
		valued, is := harmless["--"+f.Name]
		if is == slices.Contains(operators, f.Name) {
			t.Errorf("--%s: write it into config/harmless/engine.txt, or here among those of the operator", f.Name)
		}
		if is && valued != (f.NoOptDefVal == "") {
			t.Errorf("--%s: whether it takes a value is wrong in config/harmless/engine.txt", f.Name)
		}
	})
	for name := range harmless {
		plain := strings.TrimPrefix(name, "--")
		if flag := serve.Flags().Lookup(plain); flag == nil || !slices.Contains(known, flag.Name) || slices.Contains(operators, flag.Name) {
			t.Errorf("%s is in config/harmless/engine.txt, and the engine has no such flag", name)
		}
	}
}
