package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/rouse-dev/rouse/internal/s3/s3test"
)

// asked is a request for a response of slow.
func asked(text string, tokens int64, background bool) responses.ResponseNewParams {
	q := responses.ResponseNewParams{Model: "slow", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}, Temperature: openai.Float(0), MaxOutputTokens: openai.Int(tokens), Store: openai.Bool(true)}
	if background {
		q.Background = openai.Bool(true)
	}
	return q
}

// ended waits until a response in the background has ended.
func ended(ctx context.Context, t *testing.T, c openai.Client, id string) *responses.Response {
	t.Helper()
	for {
		r, err := c.Responses.Get(ctx, id, responses.ResponseGetParams{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != responses.ResponseStatusQueued && r.Status != responses.ResponseStatusInProgress {
			return r
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestAServerIsKilledWithWorkInHand kills one of two servers with one bucket while it has all kinds of work. It has a
// stream of a response to store, a background response, a response that waits for a slot, and a waiting client. Waiting
// clients see that the connection is cut. The other server does the background work, once, with the same text.
// Incomplete responses are not stored.
func TestAServerIsKilledWithWorkInHand(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	service := s3test.Gateway(t)
	env := []string{"AWS_ENDPOINT_URL=" + service.Endpoint, "AWS_ACCESS_KEY_ID=" + service.AccessKey, "AWS_SECRET_ACCESS_KEY=" + service.SecretKey}
	manifest := besideSlow(t, "", "", 2)
	one, two := newSharing(t, env, "-f", manifest), newSharing(t, env, "-f", manifest)
	c1, c2 := newOpenAI(one), newOpenAI(two)
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	defer cancel()
	texts := []string{"what is generated", "what waits"}
	want, left := map[string]string{}, map[string]string{} // texts and ids, by request
	for _, text := range texts {
		left[text] = background(ctx, t, c2, asked(text, 300, true))
	}
	for _, text := range texts {
		if want[text] = ended(ctx, t, c2, left[text]).OutputText(); want[text] == "" {
			t.Fatalf("undisturbed there is no text to %q", text)
		}
	}
	counts := func(running, waiting int) {
		if err := retry(func() error { return one.counts("slow", running, waiting) }); err != nil {
			t.Error(err)
		}
	}
	var client sync.WaitGroup
	stream := c1.Responses.NewStreaming(ctx, asked("a stream", 400, false))
	streamed := ""
	for n := 0; stream.Next(); {
		event := stream.Current()
		if event.Type == "response.created" {
			streamed = event.Response.ID
		}
		if event.Type == "response.completed" || event.Type == "response.failed" || event.Type == "response.incomplete" {
			t.Errorf("the stream ends with %s", event.RawJSON())
		}
		if event.Type != "response.output_text.delta" {
			continue
		}
		if n++; n != 5 {
			continue
		}
		for n, text := range texts { // the second finds both slots taken
			left[text] = background(ctx, t, c1, asked(text, 300, true))
			counts(2, n)
		}
		client.Go(func() {
			resp, err := http.Post(one.server.url+"/v1/completions", "application/json", strings.NewReader(`{"model":"slow","prompt":"x","max_tokens":4}`))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				t.Errorf("who waits is answered with %s, %v", resp.Status, err)
			}
		})
		counts(2, 2)
		_ = one.server.cmd.Process.Kill()
	}
	if stream.Err() == nil || streamed == "" {
		t.Errorf("the stream %q ends with %v, want a cut", streamed, stream.Err())
	}
	client.Wait()
	<-one.server.ended
	for text, id := range left {
		if r := ended(ctx, t, c2, id); r.Status != responses.ResponseStatusIncomplete && r.Status != responses.ResponseStatusCompleted || r.OutputText() != want[text] {
			t.Errorf("%s: %s, want %q", text, r.RawJSON(), want[text])
		}
	}
	wantsNone(ctx, t, &c2, streamed)
	if err := retry(func() error { // it counts an answer once that is kept
		resp, err := http.Get(two.server.url + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if answered := regexp.MustCompile(`rouse_later_requests_total\{result="answered"\} \d+`).Find(all); string(answered) != `rouse_later_requests_total{result="answered"} 4` {
			return fmt.Errorf("its metrics have %q", answered)
		}
		return nil
	}); err != nil {
		t.Errorf("the other server has not answered 4 requests, with the two undisturbed ones: %v", err)
	}
}

// background leaves a request, and returns the id of its response.
func background(ctx context.Context, t *testing.T, c openai.Client, q responses.ResponseNewParams) string {
	t.Helper()
	r, err := c.Responses.New(ctx, q)
	if err != nil || r.Status != responses.ResponseStatusQueued {
		t.Fatalf("in the background: %v", err)
	}
	return r.ID
}
