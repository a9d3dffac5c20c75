package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
)

// lineOf is a line of a batch's input.
func lineOf(id, path, body string) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":%q,"body":%s}`+"\n", id, path, body)
}

// wordOf is the word that line k asks for.
func wordOf(k int) string { return words[k%len(words)] }

// echoes are n lines that ask the model that ships with Rouse for a word each.
func echoes(n int) string {
	var text strings.Builder
	for k := range n {
		text.WriteString(lineOf(fmt.Sprint("id-", k), "/v1/chat/completions", fmt.Sprintf(`{"model":"pico","temperature":0,"messages":[{"role":"user","content":"echo %s"}]}`, wordOf(k))))
	}
	return text.String()
}

// newBatch uploads lines and makes a batch of them.
func newBatch(ctx context.Context, t *testing.T, c openai.Client, path, window, lines string) *openai.Batch {
	t.Helper()
	f, err := c.Files.New(ctx, openai.FileNewParams{File: openai.File(strings.NewReader(lines), "in.jsonl", "application/jsonl"), Purpose: openai.FilePurposeBatch})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Batches.New(ctx, openai.BatchNewParams{InputFileID: f.ID, Endpoint: openai.BatchNewParamsEndpoint(path), CompletionWindow: openai.BatchNewParamsCompletionWindow(window),
		Metadata: map[string]string{"made": "by a test"}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// awaitBatch waits until a batch is as wanted.
func awaitBatch(ctx context.Context, t *testing.T, c openai.Client, id string, wanted func(*openai.Batch) bool) (b *openai.Batch) {
	t.Helper()
	err := retry(func() (err error) {
		if b, err = c.Batches.Get(ctx, id); err == nil && !wanted(b) {
			err = fmt.Errorf("the batch is %s", b.RawJSON())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func hasEnded(b *openai.Batch) bool {
	return slices.Contains([]openai.BatchStatus{openai.BatchStatusCompleted, openai.BatchStatusFailed, openai.BatchStatusExpired, openai.BatchStatusCancelled}, b.Status)
}

// batchLine is a line of a batch's output.
type batchLine struct {
	CustomID string `json:"custom_id"`
	Response *struct {
		Status int `json:"status_code"`
		Body   struct {
			Choices []struct {
				Text    string
				Message struct{ Content string }
			}
			Output []struct{ Content []struct{ Text string } }
			Error  struct{ Code, Message string }
		}
	}
	Error *struct{ Code, Message string }
}

// outputOf is the lines of an output by their custom_id; each may be there once.
func outputOf(ctx context.Context, t *testing.T, c openai.Client, id string) map[string]batchLine {
	t.Helper()
	out := map[string]batchLine{}
	if id == "" {
		return out
	}
	resp, err := c.Files.Content(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for text := range bytes.Lines(raw) {
		var l batchLine
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if _, twice := out[l.CustomID]; twice {
			t.Errorf("%s is there twice", l.CustomID)
		}
		out[l.CustomID] = l
	}
	return out
}

// TestBatchesGo asks for files and batches as OpenAI's Go client does.
func TestBatchesGo(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--model", "pico", "--store", "store")
	c := newOpenAI(p)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	t.Run("files", func(t *testing.T) { testFiles(ctx, t, c) })
	t.Run("waits for an instance", func(t *testing.T) {
		b := newBatch(ctx, t, c, "/v1/chat/completions", "24h", echoes(50)+lineOf("lost", "/v1/chat/completions", `{"model":"none","messages":[]}`))
		b = awaitBatch(ctx, t, c, b.ID, func(b *openai.Batch) bool { return b.RequestCounts.Failed == 1 })
		if state := stateOf(ctx, t, c); b.RequestCounts.Completed != 0 || state != "gone" {
			t.Errorf("%d lines are answered, and the model is %s: want nothing to be woken for a batch that is not due", b.RequestCounts.Completed, state)
		}
		if _, err := c.Chat.Completions.New(ctx, chat("pico", "echo apple")); err != nil {
			t.Fatal(err)
		}
		b = awaitBatch(ctx, t, c, b.ID, hasEnded)
		if n := b.RequestCounts; b.Status != openai.BatchStatusCompleted || n.Total != 51 || n.Completed != 50 || n.Failed != 1 || b.Metadata["made"] != "by a test" || b.Usage.OutputTokens == 0 {
			t.Errorf("the batch is %s", b.RawJSON())
		}
		out := outputOf(ctx, t, c, b.OutputFileID)
		for k := range 50 {
			if l := out[fmt.Sprint("id-", k)]; l.Response == nil || l.Response.Body.Choices[0].Message.Content != wordOf(k) {
				t.Fatalf("line %d is %+v", k, l)
			}
		}
		if l := outputOf(ctx, t, c, b.ErrorFileID)["lost"]; l.Response == nil || l.Response.Status != http.StatusNotFound || l.Response.Body.Error.Code != "model_not_found" {
			t.Errorf("the line that asks another model is %+v", l)
		}
	})
	t.Run("endpoints", func(t *testing.T) { testEndpoints(ctx, t, c) })
	t.Run("a wrong input", func(t *testing.T) {
		b := awaitBatch(ctx, t, c, newBatch(ctx, t, c, "/v1/embeddings", "24h", "\n"+echoes(1)).ID, hasEnded)
		if b.Status != openai.BatchStatusFailed || len(b.Errors.Data) != 1 || b.Errors.Data[0].Line != 2 || b.Errors.Data[0].Code != "invalid_url" {
			t.Errorf("the batch is %s", b.RawJSON())
		}
	})
	t.Run("lists", func(t *testing.T) {
		pages := c.Batches.ListAutoPaging(ctx, openai.BatchListParams{Limit: openai.Int(2)})
		n := 0
		for pages.Next() {
			n++
		}
		if pages.Err() != nil || n < 4 {
			t.Errorf("%d batches, %v", n, pages.Err())
		}
	})
}

// stateOf is the state of the only model.
func stateOf(ctx context.Context, t *testing.T, c openai.Client) string {
	t.Helper()
	list, err := c.Models.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var m struct{ Rouse struct{ State string } }
	if err := json.Unmarshal([]byte(list.Data[0].RawJSON()), &m); err != nil {
		t.Fatal(err)
	}
	return m.Rouse.State
}

func testFiles(ctx context.Context, t *testing.T, c openai.Client) {
	var ids []string
	for k := range 5 {
		f, err := c.Files.New(ctx, openai.FileNewParams{File: openai.File(strings.NewReader(fmt.Sprint("text ", k)), fmt.Sprintf("f%d.jsonl", k), "application/jsonl"), Purpose: openai.FilePurposeBatch})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, f.ID)
	}
	pages := c.Files.ListAutoPaging(ctx, openai.FileListParams{Limit: openai.Int(2), Order: openai.FileListParamsOrderAsc})
	var got []string
	for pages.Next() {
		got = append(got, pages.Current().ID)
	}
	if pages.Err() != nil || !slices.Equal(got, ids) {
		t.Errorf("the files are %v, %v; want %v", got, pages.Err(), ids)
	}
	f, err := c.Files.Get(ctx, ids[3])
	if err != nil || f.Filename != "f3.jsonl" || f.Bytes != 6 || f.Purpose != "batch" || f.ExpiresAt <= f.CreatedAt {
		t.Errorf("the file is %+v, %v", f, err)
	}
	for _, id := range ids {
		if d, err := c.Files.Delete(ctx, id); err != nil || !d.Deleted {
			t.Errorf("delete: %+v, %v", d, err)
		}
	}
	var refused *openai.Error
	if _, err := c.Files.Get(ctx, ids[0]); !errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound {
		t.Errorf("a file that was deleted: %v", err)
	}
}

// testEndpoints asks each of them; what the model can't is the error of its line.
func testEndpoints(ctx context.Context, t *testing.T, c openai.Client) {
	for path, body := range map[string]string{
		"/v1/completions": `{"model":"pico","prompt":"echo apple","max_tokens":2}`,
		"/v1/responses":   `{"model":"pico","input":"echo apple","temperature":0}`,
		"/v1/embeddings":  `{"model":"pico","input":"apple"}`,
	} {
		b := awaitBatch(ctx, t, c, newBatch(ctx, t, c, path, "24h", lineOf("one", path, body)).ID, hasEnded)
		if b.Status != openai.BatchStatusCompleted || b.RequestCounts.Total != 1 {
			t.Errorf("%s: the batch is %s", path, b.RawJSON())
		}
		out, errs := outputOf(ctx, t, c, b.OutputFileID), outputOf(ctx, t, c, b.ErrorFileID)
		switch l, failed := out["one"], errs["one"]; {
		case path == "/v1/responses" && (l.Response == nil || len(l.Response.Body.Output) == 0 || l.Response.Body.Output[0].Content[0].Text != "apple"),
			path == "/v1/completions" && (l.Response == nil || len(l.Response.Body.Choices) == 0),
			l.Response == nil && (failed.Response == nil || failed.Response.Body.Error.Message == ""):
			t.Errorf("%s: %+v, %+v", path, l, failed)
		}
	}
}

// TestBatchKilled kills the server in the middle of a batch, twice: no line is answered twice, none is lost.
func TestBatchKilled(t *testing.T) {
	t.Parallel()
	const lines = 1500
	p := newServer(t, "--model", "pico", "--store", "store")
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	defer cancel()
	c := newOpenAI(p)
	id := newBatch(ctx, t, c, "/v1/chat/completions", "24h", echoes(lines)).ID
	seen := int64(0)
	for range 2 {
		wakePico(ctx, t, c)
		b := awaitBatch(ctx, t, c, id, func(b *openai.Batch) bool { return b.RequestCounts.Completed > seen+50 })
		if hasEnded(b) {
			t.Fatalf("the batch has ended too early: %s", b.RawJSON())
		}
		_ = p.server.cmd.Process.Kill()
		<-p.server.ended
		if err := p.start("--model", "pico", "--store", "store"); err != nil {
			t.Fatal(err)
		}
		c = newOpenAI(p)
		b, err := c.Batches.Get(ctx, id)
		if err != nil || b.RequestCounts.Completed <= seen || b.Status != openai.BatchStatusInProgress {
			t.Fatalf("after the kill the batch is %+v, %v", b, err)
		}
		seen = b.RequestCounts.Completed
	}
	wakePico(ctx, t, c)
	b := awaitBatch(ctx, t, c, id, hasEnded)
	out := outputOf(ctx, t, c, b.OutputFileID)
	if b.Status != openai.BatchStatusCompleted || b.RequestCounts.Completed != lines || len(out) != lines {
		t.Errorf("%d lines in the output; the batch is %s", len(out), b.RawJSON())
	}
	for k := range lines {
		if l := out[fmt.Sprint("id-", k)]; l.Response == nil || l.Response.Body.Choices[0].Message.Content != wordOf(k) {
			t.Fatalf("line %d is %+v", k, l)
		}
	}
	for _, dir := range []string{"tmp", "open/*"} {
		if left, err := filepath.Glob(filepath.Join(p.dir, "store", dir, "*")); err != nil || len(left) > 0 {
			t.Errorf("%v is left, %v", left, err)
		}
	}
}

// wakePico has the model awake.
func wakePico(ctx context.Context, t *testing.T, c openai.Client) {
	t.Helper()
	if _, err := c.Chat.Completions.New(ctx, chat("pico", "echo apple")); err != nil {
		t.Fatal(err)
	}
}

// TestLaterKilled kills the server right after a 202: the next one wakes the model, without a client, and has the answer.
func TestLaterKilled(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--model", "pico", "--store", "store")
	ask := func(method, path, body string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, p.server.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Prefer", "respond-async")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(raw)
	}
	resp, got := ask(http.MethodPost, "/v1/chat/completions", `{"model":"pico","temperature":0,"messages":[{"role":"user","content":"echo apple pear"}]}`)
	_ = p.server.cmd.Process.Kill()
	url := resp.Header.Get("Location")
	if resp.StatusCode != http.StatusAccepted || url == "" {
		t.Fatalf("got %s %s", resp.Status, got)
	}
	<-p.server.ended
	if err := p.start("--model", "pico", "--store", "store"); err != nil {
		t.Fatal(err)
	}
	err := retry(func() error {
		if resp, got = ask(http.MethodGet, url, ""); resp.StatusCode == http.StatusAccepted {
			return fmt.Errorf("no answer yet: %s", got)
		}
		return nil
	})
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(got, `"content":"apple pear"`) || resp.Header.Get("X-Rouse-Instance") == "" {
		t.Errorf("got %s %s, %v", resp.Status, got, err)
	}
	if resp, got = ask(http.MethodDelete, url, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("delete: %s %s", resp.Status, got)
	}
	if resp, got = ask(http.MethodGet, url, ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("after that: %s %s", resp.Status, got)
	}
}
