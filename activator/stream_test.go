package activator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/rouse-dev/rouse/api"
)

func soon(c *Config) { c.CommentAfter, c.CommentEvery = 10*time.Millisecond, 10*time.Millisecond }

// commented waits until a client gets a comment.
func (b *bench) commented() {
	before := b.comments.Load()
	b.eventually("a client reads comments", func() bool { return b.comments.Load() > before })
}

func TestCommentsWhileHeld(t *testing.T) {
	b := startBench(t, soon)
	name := b.function("m", nil)
	i := startFake(t, name, "m-0001", 1)
	i.status.WakeTime, i.wakeTakes = 2*time.Second, 100*time.Millisecond
	i.before = func() { b.commented() }
	i.report = b.a.ObserveInstance
	b.a.ObserveInstance(i.set(api.Asleep))
	b.grant(i, 1)
	resp, got := b.post(chatPath, `{"model":"m","stream":true}`)
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		t.Errorf("got %s, %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	comments, events, found := strings.Cut(got, ": server-timing ")
	if !found || !strings.Contains(comments, ": rouse stage=waking waited=0.") || !strings.Contains(comments, " expected=") || strings.Contains(comments, "data:") {
		t.Errorf("comments: got %q", comments)
	}
	if timing, data, _ := strings.Cut(events, "\n\n"); !strings.HasPrefix(timing, "hold;dur=") || !strings.HasPrefix(data, "data: {") || !strings.HasSuffix(data, "data: [DONE]\n\n") {
		t.Errorf("events: got %q", events)
	}
	if trailer := resp.Trailer.Get("Server-Timing"); !strings.HasPrefix(trailer, "hold;dur=") {
		t.Errorf("trailer: got %q", trailer)
	}
}

func TestErrorsAfterComments(t *testing.T) {
	b := startBench(t, soon)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	i.before = func() { b.commented() }
	b.grant(i, 1)
	for _, tc := range []struct {
		name string
		chat http.HandlerFunc
		want string
	}{
		{"context too long", func(w http.ResponseWriter, _ *http.Request) {
			api.WriteError(w, api.Errorf(400, "context_length_exceeded", "5000 tokens, and the context has 4096"))
		}, `"message":"5000 tokens, and the context has 4096","type":"invalid_request_error"`},
		{"flat error body", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"object":"error","message":"flat","type":"BadRequest","code":400}`)
		}, `"message":"flat","type":"BadRequest"`},
		{"no stream", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }, "no event stream"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i.chat = tc.chat
			b.a.ObserveInstance(i.set(api.Asleep))
			resp, got := b.post(chatPath, `{"model":"m","stream":true}`)
			at := strings.Index(got, "data: ")
			if resp.StatusCode != 200 || at < 0 || !strings.HasPrefix(got[at:], `data: {"error":{`) || !strings.Contains(got, tc.want) || strings.Contains(got, "[DONE]") {
				t.Errorf("got %s %q", resp.Status, got)
			}
		})
	}
}

func TestRuntimeFailsBeforeTheFirstByte(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	broken := b.instance(name, "m-0001", api.Awake)
	broken.chat = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	works := b.instance(name, "m-0002", api.Awake)
	for range 4 { // whichever is first
		if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != 200 {
			t.Errorf("got %s %s", resp.Status, got)
		}
	}
	if broken.served.Load() == 0 || works.served.Load() != 4 {
		t.Errorf("served: got %d by the broken one and %d by the other", broken.served.Load(), works.served.Load())
	}
	b.a.ObserveInstance(works.set(api.Gone))
	before := broken.served.Load()
	resp, got := b.post(chatPath, `{"model":"m"}`)
	if resp.StatusCode != 502 || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(got, api.CodeRuntimeFailed) || broken.served.Load()-before != maxGiven {
		t.Errorf("a request that kills every runtime: got %s %s after %d attempts, want 502 after %d", resp.Status, got, broken.served.Load()-before, maxGiven)
	}
}

// TestAnInstanceThatIsGone: its socket is closed and that is not reported. The request waits for another instance.
func TestAnInstanceThatIsGone(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	b.a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: name, State: api.Awake, Seq: 1, Endpoint: "unix:/nowhere", Concurrency: 1})
	go func() {
		b.eventually("one held", func() bool { s, _ := b.a.Stats(name); return s.Waiting == 1 })
		b.instance(name, "m-0002", api.Awake)
	}()
	if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != 200 {
		t.Errorf("got %s %s", resp.Status, got)
	}
}

func TestRuntimeFailsAfterTheFirstByte(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Awake)
	const word = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n"
	i.chat = func(w http.ResponseWriter, _ *http.Request) {
		streamEvents(w, word, "data: {\"half")
		panic(http.ErrAbortHandler)
	}
	check := func(what string) {
		t.Helper()
		resp, got := b.post(chatPath, `{"model":"m","stream":true}`)
		if resp.StatusCode != 200 || !strings.HasPrefix(got, word+`data: {"error":{"message":"the answer was cut`) || !strings.Contains(got, api.CodeStreamCut) || !strings.HasSuffix(got, "}}\n\n") {
			t.Errorf("%s: got %s %q", what, resp.Status, got)
		}
	}
	check("cut within an event")
	i.chat = func(w http.ResponseWriter, _ *http.Request) { streamEvents(w, word) }
	check("a clean end without a finish reason")

	i.chat = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100000")
		_, _ = io.WriteString(w, strings.Repeat("x", 50000))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	resp, err := http.Post(b.ts.URL+chatPath, "application/json", strings.NewReader(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("a body that was cut after %d bytes looks complete", n)
	}
	if s, _ := b.a.Stats(name); s.Running != 0 {
		b.eventually("all slots are free", func() bool { s, _ := b.a.Stats(name); return s.Running == 0 })
	}
}

func TestClientLeavesWhileHeld(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.ts.URL+chatPath, strings.NewReader(`{"model":"m"}`))
		_, err := http.DefaultClient.Do(req)
		left <- err
	}()
	b.eventually("one held", func() bool { s, _ := b.a.Stats(name); return s.Waiting == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	b.eventually("nobody held", func() bool { s, _ := b.a.Stats(name); return s.Waiting == 0 })
	b.a.ObserveInstance(i.set(api.Awake))
	if n := i.served.Load(); n != 0 {
		t.Errorf("served: got %d, want none", n)
	}
}

func TestClientLeavesWhileStreaming(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Awake)
	stopped := make(chan struct{})
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		streamEvents(w, "data: {}\n\n")
		<-r.Context().Done()
		close(stopped)
	}
	resp, err := http.Post(b.ts.URL+chatPath, "application/json", strings.NewReader(`{"model":"m","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "data: {}\n" || err != nil {
		t.Errorf("first event: got %q, %v", line, err)
	}
	resp.Body.Close()
	<-stopped
	b.eventually("the slot is free", func() bool { s, _ := b.a.Stats(name); return s.Running == 0 })
}

func TestAClientThatDoesNotRead(t *testing.T) {
	b := startBench(t, func(c *Config) { c.WriteTimeout = 50 * time.Millisecond })
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Awake)
	event := "data: " + strings.Repeat("x", 1<<20) + "\n\n"
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, event)
		}
	}
	resp, err := http.Post(b.ts.URL+chatPath, "application/json", strings.NewReader(`{"model":"m","stream":true}`))
	if err == nil { // otherwise its time was over before the header was written
		defer resp.Body.Close()
	}
	b.eventually("the slot is free", func() bool { s, _ := b.a.Stats(name); return s.Running == 0 })
	if i.served.Load() != 1 {
		t.Error("the request was not served")
	}
}

// TestAPausedStreamIsNoClientThatDoesNotRead: the write deadline applies to the client, not to the runtime's pauses.
func TestAPausedStreamIsNoClientThatDoesNotRead(t *testing.T) {
	b := startBench(t, func(c *Config) { c.WriteTimeout = 300 * time.Millisecond })
	i := b.instance(b.function("m", nil), "m-0001", api.Awake)
	i.chat = func(w http.ResponseWriter, _ *http.Request) {
		streamEvents(w, "data: {}\n\n", "data: {}\n\n") // the second write sets a deadline
		<-time.After(700 * time.Millisecond)
		streamEvents(w, "data: [DONE]\n\n")
	}
	for range 2 { // the second on the same connection
		if resp, got := b.post(chatPath, `{"model":"m","stream":true}`); resp.StatusCode != 200 || !strings.HasSuffix(got, "[DONE]\n\n") {
			t.Errorf("got %s %q", resp.Status, got)
		}
	}
}

func TestDrainFinishesWhatWasAccepted(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	answered := make(chan string)
	go func() {
		resp, got := b.post(chatPath, `{"model":"m"}`)
		answered <- resp.Status + got
	}()
	b.eventually("one held", func() bool { s, _ := b.a.Stats(name); return s.Waiting == 1 })
	drained := make(chan error)
	go func() { drained <- b.a.Drain(t.Context()) }()
	b.eventually("not ready", func() bool {
		resp, err := http.Get(b.ts.URL + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode == 503
	})
	resp, got := b.post(chatPath, `{"model":"m"}`)
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(got, api.CodeShutdown) {
		t.Errorf("new: got %s %s", resp.Status, got)
	}
	select {
	case err := <-drained:
		t.Fatalf("drained with a request held: %v", err)
	default:
	}
	b.a.ObserveInstance(i.set(api.Awake))
	if got := <-answered; !strings.HasPrefix(got, "200") {
		t.Errorf("held: got %s", got)
	}
	if err := <-drained; err != nil {
		t.Errorf("drain: %v", err)
	}
}

func TestDrainThatRunsOutOfTime(t *testing.T) {
	b := startBench(t, nil)
	asleep := b.function("asleep", nil)
	b.instance(asleep, "a-0001", api.Asleep)
	busy := b.function("busy", nil)
	i := b.instance(busy, "b-0001", api.Awake)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		streamEvents(w, "data: {}\n\n")
		<-r.Context().Done()
	}
	held, running := make(chan string), make(chan string)
	go func() {
		resp, got := b.post(chatPath, `{"model":"asleep"}`)
		held <- resp.Status + got
	}()
	go func() {
		resp, got := b.post(chatPath, `{"model":"busy","stream":true}`)
		running <- resp.Status + got
	}()
	b.eventually("one held, one running", func() bool {
		a, _ := b.a.Stats(asleep)
		r, _ := b.a.Stats(busy)
		return a.Waiting == 1 && r.Running == 1 && i.served.Load() == 1
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.a.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drain: got %v", err)
	}
	if got := <-held; !strings.HasPrefix(got, "503") || !strings.Contains(got, api.CodeShutdown) {
		t.Errorf("held: got %s", got)
	}
	if got := <-running; !strings.HasPrefix(got, "200 OKdata: {}\n\ndata: {\"error\"") || !strings.Contains(got, api.CodeShutdown) {
		t.Errorf("running: got %q", got)
	}
}

// TestOpenAIClient: the official Go client ignores comments, recognizes errors, and never takes a cut for an end.
func TestOpenAIClient(t *testing.T) {
	b := startBench(t, soon)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	i.wakeTakes = 50 * time.Millisecond
	b.grant(i, 1)
	client := openai.NewClient(option.WithBaseURL(b.ts.URL+"/v1"), option.WithAPIKey("x"), option.WithMaxRetries(2))
	params := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}
	read := func() (text string, err error) {
		s := client.Chat.Completions.NewStreaming(t.Context(), params)
		defer s.Close()
		for s.Next() {
			if c := s.Current(); len(c.Choices) > 0 {
				text += c.Choices[0].Delta.Content
			}
		}
		return text, s.Err()
	}
	if text, err := read(); text != "hi" || err != nil {
		t.Errorf("after comments: got %q, %v", text, err)
	}
	i.chat = func(w http.ResponseWriter, _ *http.Request) {
		streamEvents(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n")
	}
	var cut *ssestream.StreamError
	if text, err := read(); text != "hi" || !errors.As(err, &cut) {
		t.Errorf("cut: got %q, %v, want a StreamError", text, err)
	}
	var refused *openai.Error
	if _, err := client.Models.Get(t.Context(), "mm"); !errors.As(err, &refused) || refused.Code != api.CodeModelNotFound {
		t.Errorf("unknown model: got %v", err)
	}
	page, err := client.Models.List(t.Context())
	if err != nil || len(page.Data) != 1 || page.Data[0].ID != "m" {
		t.Errorf("models: got %+v, %v", page, err)
	}
	var tries atomic.Int32
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) == 1 {
			api.WriteError(w, api.Errorf(429, api.CodeBusy, "later").WithRetryAfter(time.Millisecond))
			return
		}
		answerOnce(w, r)
	}
	if got, err := client.Chat.Completions.New(t.Context(), params); err != nil || len(got.Choices) != 1 || tries.Load() != 2 {
		t.Errorf("a 429 of the runtime: got %v after %d tries, want the client to try again", err, tries.Load())
	}
}
