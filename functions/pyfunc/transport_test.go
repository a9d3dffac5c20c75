package pyfunc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/pyfunc"
	bodies "github.com/rouse-dev/rouse/internal/inbound"
)

// model is a model server that echoes the last message.
func model(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Stream   bool
		Messages []struct{ Content string }
	}
	raw, _ := io.ReadAll(r.Body)
	switch {
	case r.URL.Path == "/v1/models":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"object":"list","data":[{"id":"tiny","object":"model","created":1,"owned_by":"me"}]}`)
	case r.URL.Path == "/v1/audio/transcriptions":
		w.Header().Set("Content-Type", "application/json")
		text, _ := json.Marshal(map[string]any{"text": fmt.Sprint(bytes.Contains(raw, []byte("\xff\x00wav")))})
		_, _ = w.Write(text)
	case r.URL.Path != "/v1/chat/completions":
		api.WriteError(w, api.Errorf(404, api.CodeUnknownPath, "there is nothing at %s %s", r.Method, r.URL.RequestURI()))
	case json.Unmarshal(raw, &q) != nil || len(q.Messages) == 0:
		api.WriteError(w, api.BadRequest("messages", "no messages"))
	case q.Stream:
		w.Header().Set("Content-Type", "text/event-stream")
		for word := range strings.FieldsSeq(q.Messages[0].Content) {
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", word)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Seen-Auth", r.Header.Get("Authorization"))
		raw, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"content": q.Messages[0].Content}}}})
		_, _ = w.Write(raw)
	}
}

// endpoint serves a model behind a scoring server; its calls go through look.
func endpoint(t *testing.T, next http.HandlerFunc, look func(*http.Request)) *httptest.Server {
	t.Helper()
	h := pyfunc.New(pyfunc.Config{Door: bodies.New(bodies.Config{}), Parallel: 1, Next: next, Status: func() api.InstanceStatus { return api.InstanceStatus{State: api.Awake} }, Refusal: func() *api.Error { return nil }, Model: "tiny"})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if look != nil {
			look(r)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func transport(t *testing.T, cfg pyfunc.TransportConfig) *http.Client {
	t.Helper()
	tr, err := pyfunc.NewTransport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: tr}
}

func ask(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "tiny", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

// TestOpenAI checks that the official client works through the envelope with each form of its base URL.
func TestOpenAI(t *testing.T) {
	s := endpoint(t, model, func(r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer key" || r.URL.Path != "/serving-endpoints/tiny/invocations" {
			t.Errorf("the endpoint got %s with %q", r.URL, got)
		}
	})
	root := s.URL + "/serving-endpoints/tiny"
	for _, base := range []string{"/v1", "/invocations", "/invocations/v1/"} {
		for _, at := range []string{root, root + "/", root + "/invocations"} {
			c := openai.NewClient(option.WithBaseURL(root+base), option.WithAPIKey("key"), option.WithHTTPClient(transport(t, pyfunc.TransportConfig{Endpoint: at})))
			const said = "ein \"Äpfel\"\n\\ \u2028😀"
			got, err := c.Chat.Completions.New(t.Context(), ask(said))
			if err != nil || got.Choices[0].Message.Content != said {
				t.Errorf("%s at %s: %+v, %v", base, at, got, err)
			}
		}
	}
	c := openai.NewClient(option.WithBaseURL(root+"/v1"), option.WithAPIKey("key"), option.WithHTTPClient(transport(t, pyfunc.TransportConfig{Endpoint: root})))
	t.Run("stream", func(t *testing.T) {
		stream := c.Chat.Completions.NewStreaming(t.Context(), ask("a b c"))
		var text string
		for stream.Next() {
			text += stream.Current().Choices[0].Delta.Content
		}
		if stream.Err() != nil || text != "abc" {
			t.Errorf("streamed %q, %v", text, stream.Err())
		}
	})
	t.Run("models", func(t *testing.T) {
		got, err := c.Models.List(t.Context())
		if err != nil || len(got.Data) != 1 || got.Data[0].ID != "tiny" {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("upload", func(t *testing.T) {
		got, err := c.Audio.Transcriptions.New(t.Context(), openai.AudioTranscriptionNewParams{Model: "tiny", File: bytes.NewReader([]byte("RIFF\xff\x00wav"))})
		if err != nil || got.Text != "true" {
			t.Errorf("%+v, %v: the bytes of a form must come through", got, err)
		}
	})
	t.Run("error", func(t *testing.T) {
		_, err := c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: "tiny"})
		var e *openai.Error
		if !errors.As(err, &e) || e.StatusCode != 400 || e.Param != "messages" {
			t.Errorf("%v, want the model's own 400", err)
		}
	})
}

// TestRetries checks that a 429 in the envelope is retried after the runtime's Retry-After.
func TestRetries(t *testing.T) {
	var asked int
	s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			api.WriteError(w, api.Errorf(http.StatusTooManyRequests, api.CodeBusy, "later").WithRetryAfter(10*time.Millisecond))
			return
		}
		model(w, r)
	}, nil)
	c := openai.NewClient(option.WithBaseURL(s.URL+"/v1"), option.WithAPIKey("key"), option.WithHTTPClient(transport(t, pyfunc.TransportConfig{Endpoint: s.URL})))
	if _, err := c.Chat.Completions.New(t.Context(), ask("hi")); err != nil || asked != 2 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// TestEndpointRefuses checks that a refusal of the endpoint itself is an answer with its status and an OpenAI body.
func TestEndpointRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		status                  int
		body, message, code, ct string
	}{
		"mlflow":   {503, `{"error_code": "TEMPORARILY_UNAVAILABLE", "message": "no model"}`, "no model", "TEMPORARILY_UNAVAILABLE", "application/json"},
		"both":     {429, `{"error_code": "X", "message": "m", "error": {"message": "own", "type": "t", "param": null, "code": "c"}}`, "own", "c", "application/json"},
		"gateway":  {502, "<h1>Bad Gateway</h1>", "the endpoint answered 502 Bad Gateway: <h1>Bad Gateway</h1>", "", "text/html"},
		"nothing":  {401, "", "the endpoint answered 401 Unauthorized: ", "", "text/plain"},
		"gzipped?": {500, "\x1f\x8b", "the endpoint answered 500 Internal Server Error: \x1f", "", "text/plain"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.ct)
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(tt.status)
				fmt.Fprint(w, tt.body)
			}))
			defer s.Close()
			resp, err := transport(t, pyfunc.TransportConfig{Endpoint: s.URL}).Post(s.URL+"/v1/chat/completions", "application/json", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var got struct {
				Error struct {
					Message string
					Code    string
				}
			}
			raw, _ := io.ReadAll(resp.Body)
			if err := json.Unmarshal(raw, &got); err != nil || got.Error.Message != tt.message || got.Error.Code != tt.code {
				t.Errorf("%s: want %q %q", raw, tt.message, tt.code)
			}
			if resp.StatusCode != tt.status || resp.Header.Get("Retry-After") != "7" || resp.ContentLength != int64(len(raw)) {
				t.Errorf("%+v", resp)
			}
		})
	}
}

func TestNoScoringServer(t *testing.T) {
	for body, want := range map[string]string{
		"<html>": "want a JSON object", "{}": "predictions", `{"predictions": {}}`: "predictions", `{"predictions": []}`: "no string", `{"predictions": [1]}`: "no string",
		`{"predictions": ["x"]}`: "no JSON", "\xff": "UTF-8", "[]": "want a JSON object",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }))
		_, err := transport(t, pyfunc.TransportConfig{Endpoint: s.URL}).Get(s.URL + "/v1/models")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), s.URL) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
		s.Close()
	}
	s := httptest.NewServer(http.RedirectHandler("/login", http.StatusFound))
	defer s.Close()
	if _, err := transport(t, pyfunc.TransportConfig{Endpoint: s.URL}).Get(s.URL + "/v1/models"); err == nil || !strings.Contains(err.Error(), `redirects to "/login"`) {
		t.Errorf("%v, want that it redirects", err)
	}
	large := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", 1000)) }))
	defer large.Close()
	if _, err := transport(t, pyfunc.TransportConfig{Endpoint: large.URL, MaxAnswer: 100}).Get(large.URL + "/v1/models"); err == nil || !strings.Contains(err.Error(), "larger than 100 bytes") {
		t.Errorf("%v, want that it is too large", err)
	}
}

func TestPaths(t *testing.T) {
	var seen string
	s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Method + " " + r.URL.RequestURI()
		w.WriteHeader(http.StatusNoContent)
	}, nil)
	c := transport(t, pyfunc.TransportConfig{Endpoint: s.URL + "/invocations/"})
	for path, want := range map[string]string{
		"/v1/models/a%2Fb?x=%20y":       "GET /v1/models/a%2Fb?x=%20y",
		"/tokenize":                     "GET /tokenize",
		"/invocations/models":           "GET /v1/models",
		"/invocations/v1/models":        "GET /v1/models",
		"/":                             "GET /",
		"":                              "GET /",
		"/ping":                         "", // the scoring server's own
		"/version":                      "",
		"/invocations/chat/completions": "GET /v1/chat/completions",
	} {
		seen = ""
		resp, err := c.Get(s.URL + path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		resp.Body.Close()
		if seen != want {
			t.Errorf("%s: the runtime saw %q, want %q (status %d)", path, seen, want, resp.StatusCode)
		}
	}
	for _, url := range []string{"http://elsewhere/v1/models", strings.Replace(s.URL, "http", "https", 1) + "/v1/models"} {
		if _, err := c.Get(url); err == nil || !strings.Contains(err.Error(), "set the client's base URL to one below "+s.URL+"/v1") {
			t.Errorf("%s: %v, want an error that says what to set", url, err)
		}
	}
	below := transport(t, pyfunc.TransportConfig{Endpoint: s.URL + "/serving-endpoints/tiny"})
	for _, path := range []string{"/v1/models", "/serving-endpoints/tiny2/v1/models"} {
		if _, err := below.Get(s.URL + path); err == nil || !strings.Contains(err.Error(), "not below the endpoint") {
			t.Errorf("%s: %v, want that it is not below", path, err)
		}
	}
}

func TestBadEndpoint(t *testing.T) {
	for _, e := range []string{"", "host", "ftp://host", "http://", "http://host?x=y", "http://user:secret@host", "http://[", "/invocations"} {
		if _, err := pyfunc.NewTransport(pyfunc.TransportConfig{Endpoint: e}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want an error without secrets", e, err)
		}
	}
}

func TestToken(t *testing.T) {
	var seen []string
	s := endpoint(t, model, func(r *http.Request) { seen = append(seen, r.Header.Get("Authorization")) })
	n := 0
	c := transport(t, pyfunc.TransportConfig{Endpoint: s.URL, Token: func() string { n++; return fmt.Sprint("t", n) }})
	for _, path := range []string{"/v1/models", "/ping"} {
		resp, err := c.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if want := "[Bearer t1 Bearer t2]"; fmt.Sprint(seen) != want {
		t.Errorf("the endpoint saw %v, want %s: the token is asked for each time", seen, want)
	}
}

// body counts the calls of Close.
type body struct {
	io.Reader
	closed int
}

func (b *body) Close() error { b.closed++; return nil }

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

func TestBodies(t *testing.T) {
	s := endpoint(t, model, nil)
	c := transport(t, pyfunc.TransportConfig{Endpoint: s.URL})
	for name, tt := range map[string]struct {
		in   io.Reader
		url  string
		want string
	}{
		"read":      {strings.NewReader(`{"messages": [{"content": "a"}]}`), s.URL, ""},
		"broken":    {broken{}, s.URL, "the disk is gone"},
		"elsewhere": {strings.NewReader("x"), "http://elsewhere", "is not the endpoint"},
	} {
		b := &body{Reader: tt.in}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, tt.url+"/v1/chat/completions", b)
		r.Header.Set("Content-Type", "application/json")
		resp, err := c.Do(r)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if err == nil {
			resp.Body.Close()
		}
		if b.closed == 0 {
			t.Errorf("%s: the body was not closed", name)
		}
	}
}

// TestCancel checks that cancelling ends the call, and the request in the runtime.
func TestCancel(t *testing.T) {
	inside, left := make(chan struct{}), make(chan struct{})
	s := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		close(inside)
		<-r.Context().Done()
		close(left)
		panic(http.ErrAbortHandler)
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-inside; cancel() }()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/v1/models", nil)
	if _, err := transport(t, pyfunc.TransportConfig{Endpoint: s.URL}).Do(r); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was cancelled", err)
	}
	<-left
}

func TestManyGoroutines(t *testing.T) {
	s := endpoint(t, model, nil)
	c := transport(t, pyfunc.TransportConfig{Endpoint: s.URL})
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			text := strings.Repeat(fmt.Sprint(i, `"`), 1000*i)
			raw, _ := json.Marshal(map[string]any{"messages": []any{map[string]string{"content": text}}})
			resp, err := c.Post(s.URL+"/v1/chat/completions", "application/json", bytes.NewReader(raw))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			var got struct {
				Choices []struct{ Message struct{ Content string } }
			}
			if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Choices[0].Message.Content != text {
				t.Errorf("%d: %v, or an answer that is another's", i, err)
			}
			if resp.Header.Get("X-Seen-Auth") != "" {
				t.Error("the model server got a token")
			}
		})
	}
	all.Wait()
}
