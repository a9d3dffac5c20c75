package cli

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestEngineServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	var logs strings.Builder
	c := engineCommand()
	c.SetArgs([]string{"serve", "--model", "pico", "--name", "tiny", "--log-format", "json"})
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
	if !strings.Contains(logs.String(), `"msg":"ready"`) {
		t.Errorf("logs: %s", logs.String())
	}
}

func TestEngineServeRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                              `required flag(s) "model" not set`,
		"--model pico extra":            "unknown command",
		"--model pico --log-format xml": `log format "xml"`,
		"--model pico --listen :80":     "this host only",
		"--model /no/such/file.gguf":    "/no/such/file.gguf",
	} {
		c := engineCommand()
		c.SetArgs(append([]string{"serve"}, strings.Fields(args)...))
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("serve %s: %v, want an error with %q", args, err, want)
		}
	}
}
