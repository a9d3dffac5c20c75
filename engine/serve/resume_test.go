package serve_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/serve"
)

// stated asks for a stream with its state, and returns the data of its events and the pieces before them.
func (c *client) stated(path, body, state string) (data, pieces []string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), "POST", "http://engine"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if state != "" {
		r.Header.Set("X-Rouse-Stream-State", state)
	}
	resp, err := c.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.t.Fatalf("status %d, %v: %s", resp.StatusCode, err, raw)
	}
	piece := ""
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, ": rouse-state "):
			piece = strings.TrimPrefix(line, ": rouse-state ")
		case strings.HasPrefix(line, "data: "):
			data, pieces, piece = append(data, line[len("data: "):]), append(pieces, piece), ""
		case line != "":
			c.t.Fatalf("line %q", line)
		}
	}
	return data, pieces
}

const weatherTool = `"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"at":{"type":"string","maxLength":8}},"required":["at"],"additionalProperties":false}}}]`

// TestStreamsGoOn cuts streams behind each of their events and has another server continue. Both parts together must
// equal an uncut stream, to the byte, for every form of the text.
func TestStreamsGoOn(t *testing.T) {
	for name, test := range map[string]struct{ path, body string }{
		"greedy":      {"/v1/chat/completions", chatBody("one two three", `,"stream":true,"stream_options":{"include_usage":true}`)},
		"drawn":       {"/v1/chat/completions", chatBody("one two", `,"stream":true,"temperature":1.5,"max_tokens":12,"repetition_penalty":1.2,"presence_penalty":0.3`)},
		"logprobs":    {"/v1/chat/completions", chatBody("one", `,"stream":true,"temperature":1,"seed":7,"logprobs":true,"top_logprobs":2,"max_tokens":9`)},
		"stop":        {"/v1/chat/completions", chatBody("one two three four", `,"stream":true,"stop":["two thr","four"]`)},
		"characters":  {"/v1/chat/completions", chatBody("ä€😀 ñ", `,"stream":true`)},
		"form":        {"/v1/chat/completions", chatBody("x", `,"stream":true,"temperature":1,"max_tokens":40,"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object","properties":{"a":{"type":"integer","maximum":99},"b":{"enum":["yes","no"]}},"required":["a","b"],"additionalProperties":false}}}`)},
		"call":        {"/v1/chat/completions", chatBody("x", `,"stream":true,"max_tokens":60,"tool_choice":"required",`+weatherTool)},
		"text":        {"/v1/completions", `{"model":"parrot","prompt":"say this\n","stream":true,"temperature":0,"logprobs":1,"max_tokens":8,"stream_options":{"include_usage":true}}`},
		"echo":        {"/v1/completions", `{"model":"parrot","prompt":"say this\n","stream":true,"temperature":0,"echo":true,"max_tokens":8}`},
		"texts":       {"/v1/chat/completions", chatBody("one two", `,"stream":true,"n":3,"temperature":1.5,"max_tokens":6,"logprobs":true,"stream_options":{"include_usage":true}`)},
		"texts, said": {"/v1/chat/completions", chatBody("one two", `,"stream":true,"n":2,"temperature":1.5,"seed":4,"stop":["t"],"max_tokens":9`)},
		"counted":     {"/v1/completions", `{"model":"parrot","prompt":["say this\n","and that\n"],"stream":true,"temperature":1.5,"n":2,"max_tokens":5,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`},
		"prompts":     {"/v1/completions", `{"model":"parrot","prompt":["say this\n","and that\n","say this\n"],"stream":true,"temperature":1.5,"n":2,"logprobs":1,"max_tokens":5,"stream_options":{"include_usage":true}}`},
		"least words": {"/v1/completions", `{"model":"parrot","prompt":"a b\n","stream":true,"temperature":0,"min_tokens":6,"max_tokens":9,"stop":["b"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			goesOn(t, test.path, test.body, func() *client { return start(t, serve.Config{}, 0) })
		})
	}
}

// goesOn cuts a stream behind each of its events and has another server continue it.
func goesOn(t *testing.T, path, body string, server func() *client) {
	t.Helper()
	one, two := server(), server()
	scores := ""
	if strings.Contains(body, "logprobs") {
		scores = "scores:"
	}
	want, pieces := one.stated(path, body, "new")
	if len(want) < 4 || want[len(want)-1] != "[DONE]" {
		t.Fatalf("the whole stream: %q", want)
	}
	if at := slices.Index(pieces, ""); at != len(pieces)-1 {
		t.Fatalf("event %d of %d has no state", at, len(pieces))
	}
	for n := 1; n < len(want); n++ {
		got, more := two.stated(path, body, strings.Join(pieces[:n], ";"))
		if diff := cmp.Diff(byText(want[n:]), byText(got)); diff != "" {
			t.Fatalf("cut behind event %d of %d (-whole +rest):\n%s", n, len(want), diff)
		}
		if diff := cmp.Diff(byText(pieces[n:]), byText(more)); diff != "" {
			t.Fatalf("cut behind event %d of %d, the state (-whole +rest):\n%s", n, len(want), diff)
		}
	}
	if scores != "" && strings.Contains(body, `"echo"`) {
		return // the prompt's scores are not requested again
	}
	want, pieces = one.stated(path, body, scores+"new")
	for _, n := range []int{1, len(want) / 2, len(want) - 1} {
		again, told := two.stated(path, body, scores+"replay:"+strings.Join(pieces[:n], ";"))
		if diff := cmp.Diff(byText(want), byText(again)); diff != "" {
			t.Fatalf("cut behind event %d of %d and replayed (-whole +replayed):\n%s", n, len(want), diff)
		}
		if diff := cmp.Diff(byText(pieces), byText(told)); diff != "" {
			t.Fatalf("cut behind event %d of %d and replayed, the state (-whole +replayed):\n%s", n, len(want), diff)
		}
	}
	if plain, none := one.stated(path, body, ""); strings.Join(none, "") != "" || plain[len(plain)-1] != "[DONE]" {
		t.Errorf("without the header: %d events, the state %q; want none", len(plain), none)
	}
}

// textOf finds the number of the text that an event, or a piece of a state, is of.
var textOf = regexp.MustCompile(`"index":(\d+),"(?:delta|text)|^(\d+)=`)

// byText sorts the events of several texts, or the pieces of their state, by text: which text comes next is not the stream's to keep.
func byText(list []string) []string {
	of := func(s string) int {
		m := textOf.FindStringSubmatch(s)
		if m == nil {
			return len(list) // the usage, and the end
		}
		n, _ := strconv.Atoi(m[1] + m[2])
		return n
	}
	list = slices.Clone(list)
	for i, s := range list { // fields of the whole stream precede its first text
		if at := strings.LastIndexByte(s, ':'); at >= 0 && !strings.HasPrefix(s, "{") {
			list[i] = s[at+1:]
			list = append(list, s[:at])
			break
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return of(a) - of(b) })
	return list
}

// TestStreamStateIsChecked checks that anything but a state of this stream is refused.
func TestStreamStateIsChecked(t *testing.T) {
	c := start(t, serve.Config{}, 0)
	body := chatBody("one two", `,"stream":true,"max_tokens":6`)
	_, pieces := c.stated("/v1/chat/completions", body, "new")
	first := pieces[0]
	for _, bad := range []string{
		"x", ":::::", first + ";", first + ";u;7", first + ",-1", first + ",999999", first + ",99999999999", strings.Repeat("a", 65) + first,
		first + strings.Repeat(",1", 10), `a"b` + first, strings.Replace(first, ":", ":x", 1),
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://engine/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Rouse-Stream-State", bad)
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("state %.80q: status %d, %v: %s", bad, resp.StatusCode, err, raw)
		}
	}
	if got := fmt.Sprint(c.engine.Stats().Failure); got != "<nil>" {
		t.Errorf("the engine failed: %s", got)
	}
}
