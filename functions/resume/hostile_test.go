package resume

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// half returns the state of a stream after some events.
func half(t *testing.T, body string, events int) string {
	t.Helper()
	by, url := served(t, &fake{})
	_, text := post(t, by, url+pathChat, body, control.StateNew)
	all := strings.SplitAfter(text, "\n\n")
	var known relay.State
	known.Take([]byte(strings.Join(all[:events], "")))
	return known.Header()
}

// TestSpoiltStates: a state that is cut at any byte, or has any bit flipped, is refused with a reason, by us or by vLLM, or gives a
// well-formed stream.
func TestSpoiltStates(t *testing.T) {
	const usage = `{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true,"max_tokens":100,"stream_options":{"include_usage":true}}`
	by, url := served(t, &fake{})
	for _, events := range []int{3, 16} {
		whole, refused := half(t, usage, events), 0
		try := func(state string) {
			resp, got := post(t, by, url+pathChat, usage, state)
			if resp.StatusCode == http.StatusBadRequest {
				refused++
				var e struct{ Error struct{ Message string } }
				if json.Unmarshal([]byte(got), &e) != nil || e.Error.Message == "" {
					t.Fatalf("state %q: refused with %q", state, got)
				}
				return
			}
			if resp.StatusCode != http.StatusOK || !strings.HasSuffix(got, "data: [DONE]\n\n") {
				t.Fatalf("state %q: %s %q", state, resp.Status, got)
			}
			told(t, string((&relay.State{}).Take([]byte(got))), false)
		}
		for at := 1; at < len(whole); at++ {
			try(whole[:at])
		}
		for at := range len(whole) {
			for bit := range 8 {
				b := []byte(whole)
				b[at] ^= 1 << bit
				try(string(b))
			}
		}
		if refused == 0 {
			t.Error("nothing was refused")
		}
		try(whole)
	}
}

// TestForgedStates has impossible numbers, and parts of another request's state.
func TestForgedStates(t *testing.T) {
	const huge = "9223372036854775807"
	state := half(t, hello, 4)
	parts := strings.SplitN(state, ":", 8) // ids, id, time, model, mark, prompt, digest, tokens
	with := func(field int, value string) string {
		p := append([]string{}, parts...)
		p[field] = value
		return strings.Join(p, ":")
	}
	other := strings.Replace(hello, `"hello"`, `"hallo"`, 1)
	by, url := served(t, &fake{})
	for name, test := range map[string]struct{ body, state, why string }{
		"a prompt of the most tokens":      {hello, with(5, huge), "not a state"},
		"one, and all was made":            {hello, with(5, huge) + ";f5014", "not a state"},
		"a prompt below nothing":           {hello, with(5, "-1"), "not a state"},
		"a token that is too large":        {hello, with(7, huge), "not a state"},
		"a token below nothing":            {hello, with(7, "-7"), "not a state"},
		"a token of no vocabulary":         {hello, with(7, "2147483647"), "vLLM's answer at /detokenize is 400"},
		"more dropped than there is":       {hello, state + ";9<1", "not a state"},
		"dropped below nothing":            {hello, state + ";-1<1", "not a state"},
		"the usage before the end":         {hello, state + ";u", "not a state"},
		"a long id":                        {hello, with(1, strings.Repeat("a", 257)), "not a state"},
		"another version":                  {hello, "ids2" + strings.TrimPrefix(state, "ids"), "not a state"},
		"our engine's":                     {hello, "chatcmpl-A:1::0:m1:5,6", "not a state"},
		"our engine's, replayed":           {hello, control.StateReplay + "chatcmpl-A:1::0:m1:5,6", "not a state"},
		"another model":                    {hello, with(4, "00"), "another model"},
		"of another request":               {other, state, "prompt reads otherwise"},
		"another prompt's digest":          {hello, with(6, strings.Repeat("0", len(parts[6]))), "prompt reads otherwise"},
		"a prompt that is one token short": {hello, with(5, "1"), "prompt reads otherwise"},
	} {
		resp, got := post(t, by, url+pathChat, test.body, test.state)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(got, test.why) {
			t.Errorf("%s: %s %.300s, want it refused with %q", name, resp.Status, got, test.why)
		}
	}
}

// spoiler is a vLLM that misbehaves at one path, and counts the bodies that are not closed.
type spoiler struct {
	fake *fake
	path string // the spoilt path; with ! a request for a stream
	does func(*http.Request) (*http.Response, error)
	open atomic.Int32
}

// closing is a body that records when it is closed.
type closing struct {
	io.Reader
	of     *spoiler
	closed bool
}

func (c *closing) Close() error {
	if !c.closed {
		c.closed = true
		c.of.open.Add(-1)
	}
	return nil
}

func (s *spoiler) RoundTrip(r *http.Request) (*http.Response, error) {
	raw, _ := io.ReadAll(r.Body)
	path := r.URL.Path
	if strings.Contains(string(raw), `"stream":true`) {
		path += "!"
	}
	var resp *http.Response
	var err error
	if path == s.path {
		resp, err = s.does(r)
	} else {
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(strings.NewReader(string(raw)))
		resp, err = s.fake.RoundTrip(again)
	}
	if resp != nil {
		s.open.Add(1)
		resp.Body = &closing{Reader: resp.Body, of: s}
	}
	return resp, err
}

// TestHostileVLLM: a vLLM that should continue a stream fails, lies, hangs or dies, at each request. The answer is an error, a refusal
// or vLLM's own, and never a part of a stream without a state. Nothing stays open.
func TestHostileVLLM(t *testing.T) {
	endless := strings.Replace(hello, `,"max_tokens":100`, "", 1)
	state := half(t, hello, 5)
	made := func(status int, kind, body string) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}
	}
	const js, sse = "application/json", "text/event-stream"
	cut := errors.New("connection reset")
	ways := map[string]func(*http.Request) (*http.Response, error){
		"it dies":             func(*http.Request) (*http.Response, error) { return nil, cut },
		"it hangs":            func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
		"it fails":            made(http.StatusInternalServerError, js, `{"error":{"message":"boom","code":500}}`),
		"it refuses":          made(http.StatusBadRequest, js, `{"error":{"message":"no","code":400}}`),
		"it says nothing":     made(http.StatusOK, js, ""),
		"it says null":        made(http.StatusOK, js, "null"),
		"it says an array":    made(http.StatusOK, js, "[]"),
		"it says garbage":     made(http.StatusOK, js, "\x00\xff{"),
		"it says other kinds": made(http.StatusOK, js, `{"prompt_token_ids":"x","prompt":7,"data":{"max_model_len":"y"},"choices":1}`),
		"it says too much":    made(http.StatusOK, js, `{"prompt_token_ids":[`+strings.Repeat("1,", maxAnswer/2)),
		"it says a stream":    made(http.StatusOK, sse, "data: [DONE]\n\n"),
	}
	for _, path := range []string{pathChat, "/detokenize", "/v1/models"} {
		for name, does := range ways {
			t.Run(strings.Trim(path, "/")+" "+name, func(t *testing.T) {
				s := &spoiler{fake: &fake{interval: 1}, path: path, does: does}
				by, url := served(t, s.fake, func(c *Config) { c.Next = s })
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if name == "it hangs" {
					leave()
				}
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+pathChat, strings.NewReader(endless))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set(control.HeaderState, state)
				resp, err := by.RoundTrip(r)
				if err == nil {
					raw, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if strings.Contains(string(raw), control.StateComment) || resp.StatusCode == http.StatusOK {
						t.Errorf("got %s %.300q", resp.Status, raw)
					}
				}
				if n := s.open.Load(); n != 0 {
					t.Errorf("%d bodies are open", n)
				}
			})
		}
	}
}
