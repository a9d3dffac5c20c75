package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/rouse-dev/rouse/functions/pyfunc"
)

// The official client talks through an /invocations endpoint, from zero.
func TestOpenAIGoThroughInvocations(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--model", "pico")
	through, err := pyfunc.NewTransport(pyfunc.TransportConfig{Endpoint: p.server.url + "/serving-endpoints/pico"})
	if err != nil {
		t.Fatal(err)
	}
	c := openai.NewClient(option.WithBaseURL(p.server.url+"/serving-endpoints/pico/v1"), option.WithAPIKey("none"), option.WithHTTPClient(&http.Client{Transport: through}))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	got, err := c.Chat.Completions.New(ctx, chat("pico", "echo apple pear"))
	if err != nil || got.Choices[0].Message.Content != "apple pear" {
		t.Errorf("answered %+v, %v; want apple pear", got, err)
	}
	stream := c.Chat.Completions.NewStreaming(ctx, chat("pico", "upper sun moon"))
	var text strings.Builder
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			text.WriteString(choice.Delta.Content)
		}
	}
	if err := stream.Err(); err != nil || text.String() != "SUN MOON" {
		t.Errorf("streamed %q, %v; want SUN MOON", text.String(), err)
	}
	_, err = c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "pico"})
	var refused *openai.Error
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusBadRequest || refused.Param != "messages" {
		t.Errorf("a chat without messages: %v (%+v), want a 400 that names them", err, refused)
	}
}

// A client of mlflow-extensions' wire format talks to a function, from zero.
func TestCompatClient(t *testing.T) {
	t.Parallel()
	const python = "/usr/bin/python3" // Debian's packages are those of this one
	if exec.Command(python, "-c", "import httpx").Run() != nil {
		absent(t, "no %s with httpx: apt-get install python3-httpx", python)
	}
	p := newServer(t, "--model", "pico")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, python, "clients/compat.py", p.server.url+"/invocations", "pico", "pico.default.localhost")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("compat.py: %v\n%s", err, stderr.String())
	}
	want := map[string]struct {
		status int
		text   string
	}{
		"chat": {200, `"content":"`}, "stream": {200, "data: [DONE]"}, "models": {200, `"id":"pico"`},
		"bad request": {400, `"param":"messages"`}, "unknown path": {404, "unknown_path"}, "administration": {404, "unknown_path"},
		"no envelope": {400, "BAD_REQUEST"}, "/ping": {200, "\n"}, "/version": {200, ""}, "unified": {200, `"content":"`}, "unified stream": {200, "data: [DONE]"},
		"many": {0, ""},
	}
	in := bufio.NewScanner(bytes.NewReader(out))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l struct {
			Name   string
			Status int
			Text   string
			Health struct{ Status string }
		}
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", in.Bytes(), err)
		}
		w, found := want[l.Name]
		delete(want, l.Name)
		if found && (l.Status != w.status || !strings.Contains(l.Text, w.text) || l.Name == "many" && l.Health.Status != "AVAILABLE") {
			t.Errorf("%s; want status %d and %q", in.Bytes(), w.status, w.text)
		}
	}
	for name := range want {
		t.Errorf("the client did not ask for %q", name)
	}
}
