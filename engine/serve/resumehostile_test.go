package serve_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/serve"
)

// goOn asks for a stream with a state, and returns the answer.
func (c *client) goOn(t *testing.T, path, body, state string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://engine"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Rouse-Stream-State", state)
	resp, err := c.Do(r)
	if err != nil {
		t.Fatalf("state %q: %v", state, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("state %q: %v behind %q", state, err, raw)
	}
	return resp.StatusCode, string(raw)
}

// judged returns an error unless an answer to a wrong state is a refusal with a reason, or a well-formed stream.
func judged(status int, answer string) error {
	if status != http.StatusOK {
		var e struct {
			Error struct{ Message, Code string }
		}
		if err := json.Unmarshal([]byte(answer), &e); err != nil || e.Error.Message == "" || status != http.StatusBadRequest {
			return fmt.Errorf("status %d: %.300q", status, answer)
		}
		return nil
	}
	whole := false
	for line := range strings.Lines(answer) {
		data, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: ")
		whole = whole || data == "[DONE]"
		if found && data != "[DONE]" && !json.Valid([]byte(data)) {
			return fmt.Errorf("the event %q", data)
		}
	}
	if !whole {
		return fmt.Errorf("a stream without an end: %.300q", answer)
	}
	return nil
}

// TestSpoiltStates truncates a state at each byte and flips each of its bits. The server either refuses it with a
// reason or gives a stream that is well formed, and the engine goes on.
func TestSpoiltStates(t *testing.T) {
	const chat = "/v1/chat/completions"
	for name, test := range map[string]struct{ path, body, asked string }{
		"greedy":   {chat, chatBody("one two", `,"stream":true,"max_tokens":6,"stream_options":{"include_usage":true}`), ""},
		"drawn":    {chat, chatBody("one", `,"stream":true,"temperature":1.5,"max_tokens":5,"stop":["e"]`), ""},
		"texts":    {chat, chatBody("ab", `,"stream":true,"n":2,"temperature":1.5,"max_tokens":3`), ""},
		"form":     {chat, chatBody("x", `,"stream":true,"max_tokens":12,"guided_regex":"[a-c]{4,9}"`), ""},
		"call":     {chat, chatBody("x", `,"stream":true,"max_tokens":60,"tool_choice":"required",`+weatherTool), ""},
		"prompts":  {"/v1/completions", `{"model":"parrot","prompt":["say\n","and\n"],"stream":true,"temperature":1,"max_tokens":2}`, ""},
		"scores":   {chat, chatBody("one", `,"stream":true,"logprobs":true,"top_logprobs":1,"max_tokens":3`), "scores:"},
		"replayed": {chat, chatBody("one two", `,"stream":true,"max_tokens":6`), "replay:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, serve.Config{}, 0)
			scores := strings.TrimPrefix(test.asked, "replay:")
			_, pieces := c.stated(test.path, test.body, scores+"new")
			whole := test.asked + strings.Join(pieces[:min(len(pieces)-1, 5)], ";")
			refused := 0
			try := func(state string) {
				status, answer := c.goOn(t, test.path, test.body, state)
				if err := judged(status, answer); err != nil {
					t.Fatalf("state %q of %q: %v", state, whole, err)
				}
				if status != http.StatusOK {
					refused++
				}
			}
			for at := 1; at < len(whole); at++ {
				try(whole[:at])
			}
			for at := range len(whole) {
				for bit := range 8 {
					b := []byte(whole)
					if b[at] ^= 1 << bit; b[at] > ' ' && b[at] < 0x7f || b[at] >= 0x80 || b[at] == '\t' {
						try(string(b))
					}
				}
			}
			if refused == 0 {
				t.Error("nothing was refused")
			}
			if status, answer := c.goOn(t, test.path, test.body, whole); status != http.StatusOK || judged(status, answer) != nil {
				t.Errorf("what was told itself: %d %q", status, answer)
			}
			if got := fmt.Sprint(c.engine.Stats().Failure); got != "<nil>" {
				t.Errorf("the engine failed: %s", got)
			}
		})
	}
}

// TestForgedStates checks impossible numbers, numbers beyond the limits, and states of another request.
func TestForgedStates(t *testing.T) {
	c := start(t, serve.Config{}, 0)
	const path = "/v1/chat/completions"
	body := chatBody("one two", `,"stream":true,"max_tokens":6`)
	_, pieces := c.stated(path, body, "new")
	head := strings.Split(pieces[0], ":") // id, time, seed, cached, mark, tokens
	with := func(field int, value string) string {
		h := append([]string{}, head...)
		h[field] = value
		return strings.Join(h, ":")
	}
	drawn := chatBody("one two", `,"stream":true,"max_tokens":6,"temperature":1`)
	_, ofDrawn := c.stated(path, drawn, "new")
	seed := strings.Split(ofDrawn[0], ":")
	seed[2] = ""
	huge := "9223372036854775807"
	for name, test := range map[string]struct{ body, state, why string }{
		"cached, more than the prompt":   {body, with(3, "100000"), "no state"},
		"cached, the most":               {body, with(3, huge), "no state"},
		"cached, below nothing":          {body, with(3, "-1"), "no state"},
		"cached, too large for a number": {body, with(3, huge+"0"), "no state"},
		"time, too large for a number":   {body, with(1, huge+"0"), "no state"},
		"a tab in the id":                {body, with(0, "chatcmpl-a\tb"), "no state"},
		"an id that is no text":          {body, with(0, "chatcmpl-\xff"), "no state"},
		"a seed that is missing":         {drawn, strings.Join(seed, ":"), "no state"},
		"a token below nothing":          {body, with(5, "-5"), "no state"},
		"a token of no vocabulary":       {body, with(5, "2147483647"), "vocabulary"},
		"more tokens than there may be":  {body, pieces[0] + strings.Repeat(",1", 20000), "tokens"},
		"many pieces":                    {body, pieces[0] + strings.Repeat(";1", 20000), "tokens"},
		"a text that there is not":       {body, with(5, "1=5"), "no state"},
		"another model":                  {body, with(4, "m2"+head[4][strings.Index(head[4], "."):]), "another model"},
		"another version's mark":         {body, with(4, head[4][:strings.Index(head[4], ".")]), "reads otherwise"},
		"another version's beginning":    {body, "v2:" + pieces[0], "no state"},
		"of another prompt":              {chatBody("one three", `,"stream":true,"max_tokens":6`), pieces[0], "reads otherwise"},
		"of another prompt, replayed":    {chatBody("one three", `,"stream":true,"max_tokens":6`), "replay:" + pieces[0], "reads otherwise"},
		"the state of another runtime":   {body, "ids:chatcmpl-a:1:m:x:3:aa:5", ""},
		"replayed twice":                 {body, "replay:replay:" + pieces[0], "no state"},
	} {
		status, answer := c.goOn(t, path, test.body, test.state)
		if status != http.StatusBadRequest || !strings.Contains(answer, test.why) {
			t.Errorf("%s: %d %.300s, want it refused with %q", name, status, answer, test.why)
		}
	}
	if got := fmt.Sprint(c.engine.Stats().Failure); got != "<nil>" {
		t.Errorf("the engine failed: %s", got)
	}
}

// TestMoreTextsThanThereAre checks that no memory is allocated for the number of texts that a state claims.
func TestMoreTextsThanThereAre(t *testing.T) {
	c := start(t, serve.Config{}, 0)
	for path, body := range map[string]string{"/v1/chat/completions": chatBody("x", `,"stream":true,"n":%d`), "/v1/completions": `{"model":"parrot","prompt":["a","b"],"stream":true,"n":%d}`} {
		for _, n := range []int{129, 1 << 40, 1<<63 - 1} {
			for _, state := range []string{"new", "a:1::0:m:0=1", ""} {
				status, answer := c.goOn(t, path, fmt.Sprintf(body, n), state)
				if status != http.StatusBadRequest || !strings.Contains(answer, "want 1 to 128") {
					t.Errorf("%s, %d texts, state %q: %d %.200s", path, n, state, status, answer)
				}
			}
		}
	}
}
