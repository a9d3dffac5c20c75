package resume

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// post sends a request through a transport, and returns the response, and the body as far as it comes.
func post(t *testing.T, by *Transport, url, body, state string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if state != "" {
		r.Header.Set(control.HeaderState, state)
	}
	resp, err := by.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body) // it may be cut
	return resp, string(raw)
}

// follow returns what a client gets of a stream that is cut, while an activator keeps its state.
func follow(t *testing.T, body, path string, from ...func() (*Transport, string)) string {
	t.Helper()
	var known relay.State
	out := ""
	for _, next := range from {
		by, url := next()
		resp, text := post(t, by, url+path, body, known.Header())
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", resp.Status, text)
		}
		whole, _, _ := strings.Cut(text+"\x00", "\x00")
		if at := strings.LastIndex(whole, "\n\n"); at >= 0 {
			whole = whole[:at+2]
		} else {
			whole = ""
		}
		out += string(known.Take([]byte(whole)))
		if strings.Contains(out, "[DONE]") {
			break
		}
	}
	return out
}

// told normalises a stream: without empty events, and, joined, without the bounds between texts.
func told(t *testing.T, stream string, joined bool) (out []string) {
	t.Helper()
	all := ""
	for event := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		data, found := strings.CutPrefix(event, "data: ")
		if !found {
			t.Fatalf("the client got %q", event)
		}
		if data == "[DONE]" {
			out = append(out, data)
			continue
		}
		var c struct {
			ID, Object, Model string
			Created           int
			Usage             map[string]any
			Prompt            any `json:"prompt_token_ids"`
			Choices           []struct {
				Text   string
				Delta  struct{ Role, Content string }
				Finish *string `json:"finish_reason"`
				Tokens any     `json:"token_ids"`
				Prompt any     `json:"prompt_token_ids"`
			}
		}
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		delete(c.Usage, "prompt_tokens_details") // unknown if vLLM need not be asked any more
		if len(c.Choices) == 0 {
			out = append(out, fmt.Sprint(c.ID, c.Object, c.Model, c.Created, c.Usage))
			continue
		}
		one := c.Choices[0]
		if c.Prompt != nil || one.Tokens != nil || one.Prompt != nil {
			t.Fatalf("the client got ids: %s", data)
		}
		all += one.Text + one.Delta.Content
		if one.Delta.Role == "" && one.Text+one.Delta.Content == "" && one.Finish == nil {
			continue
		}
		finish := ""
		if one.Finish != nil {
			finish = *one.Finish
		}
		if joined {
			c.Usage, one.Text, one.Delta.Content = nil, "", ""
			if one.Delta.Role == "" && finish == "" {
				continue
			}
		}
		out = append(out, fmt.Sprint(c.ID, c.Object, c.Model, c.Created, c.Usage, one.Delta, one.Text, finish))
	}
	return append(out, all)
}

var forms = map[string]struct{ path, body string }{
	"chat":             {pathChat, `{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true,"temperature":0,"min_tokens":3}`},
	"chat, usage":      {pathChat, `{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true,"max_tokens":100,"stream_options":{"include_usage":true}}`},
	"chat, continuous": {pathChat, `{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true,"max_completion_tokens":100,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`},
	"chat, length":     {pathChat, `{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true,"max_completion_tokens":7,"max_tokens":3}`},
	"text":             {pathText, `{"model":"m","prompt":"hello","stream":true,"max_tokens":100,"stream_options":{"include_usage":true}}`},
	"text, default":    {pathText, `{"model":"m","prompt":"hello","stream":true}`},
	"ids":              {pathText, `{"model":"m","prompt":[104,105],"stream":true,"max_tokens":9}`},
}

// TestStreamsGoOn cuts streams at each byte, or around the end of each event and at some others, also within characters of several
// tokens: the client sees no seam.
func TestStreamsGoOn(t *testing.T) {
	for name, form := range forms {
		for _, interval := range []int{1, 3} {
			t.Run(fmt.Sprint(name, interval), func(t *testing.T) {
				whole := follow(t, form.body, form.path, func() (*Transport, string) { return served(t, &fake{interval: interval}) })
				want := told(t, whole, interval > 1)
				first := &fake{interval: interval}
				by, url := served(t, first)
				other, there := served(t, &fake{interval: interval})
				_, all := post(t, by, url+form.path, strings.TrimSuffix(form.body, "}")+`,"return_token_ids":true}`, "")
				for cut := 1; cut < len(all)-1; cut++ {
					if edge := strings.Contains(all[max(0, cut-3):cut+1], "\n\n"); !edge && cut%61 > 0 && (name != "chat, usage" || interval != 3) {
						continue
					}
					first.cut = cut
					got := follow(t, form.body, form.path, func() (*Transport, string) { return by, url }, func() (*Transport, string) { return other, there })
					if diff := gocmp.Diff(want, told(t, got, interval > 1)); diff != "" {
						t.Fatalf("cut behind byte %d, %q (-whole +cut):\n%s", cut, all[:cut], diff)
					}
				}
			})
		}
	}
}

// TestStreamsGoOnAgainAndAgain cuts a stream after each event, at a new instance each time.
func TestStreamsGoOnAgainAndAgain(t *testing.T) {
	for name, form := range forms {
		whole := follow(t, form.body, form.path, func() (*Transport, string) { return served(t, &fake{}) })
		var known relay.State
		out := ""
		for range 60 {
			by, url := served(t, &fake{})
			_, text := post(t, by, url+form.path, form.body, known.Header())
			events := strings.SplitAfter(text, "\n\n")
			// After an event without text the same one comes again.
			n := 1
			for n < len(events)-1 && !strings.Contains(events[n-1], `"role"`) && (strings.Contains(events[n-1], `"content":""`) || strings.Contains(events[n-1], `"text":""`)) && strings.Contains(events[n-1], `"finish_reason":null`) {
				n++
			}
			if out += string(known.Take([]byte(strings.Join(events[:n], "")))); strings.Contains(out, "[DONE]") {
				break
			}
		}
		if diff := gocmp.Diff(told(t, whole, false), told(t, out, false)); diff != "" {
			t.Errorf("%s (-whole +cut):\n%s", name, diff)
		}
	}
}

const hello = `{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true,"max_tokens":100}`

// TestOnlyTheSameModelGoesOn: another reference, other options, other files, another adapter, another prompt are refused.
func TestOnlyTheSameModelGoesOn(t *testing.T) {
	folder := func(content string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	same, changed := folder("a"), folder("a")
	model := func(m Model) func(*Config) {
		m.Starts = max(m.Starts, 1)
		return func(c *Config) { c.Model = func() Model { return m } }
	}
	adapter := func(path string) func(*Config) {
		return func(c *Config) { c.Adapter = func(name string) (string, bool) { return path, name == "m" } }
	}
	by, url := served(t, &fake{}, model(Model{Name: "n", Path: same}))
	_, first := post(t, by, url+pathChat, hello, control.StateNew)
	if !strings.HasPrefix(first, control.StateComment) {
		t.Fatalf("got %.300q", first)
	}
	piece, _, _ := strings.Cut(strings.TrimPrefix(first, control.StateComment), "\n")
	touched, _ := served(t, &fake{}, model(Model{Name: "n", Path: changed}))
	if resp, got := post(t, touched, url+pathChat, hello, piece); resp.StatusCode != http.StatusOK {
		t.Errorf("the same content elsewhere: %s %s", resp.Status, got)
	}
	if err := os.WriteFile(filepath.Join(changed, "model.safetensors"), []byte("bb"), 0o600); err != nil {
		t.Fatal(err)
	}
	if resp, got := post(t, touched, url+pathChat, hello, piece); resp.StatusCode != http.StatusBadRequest || !strings.Contains(got, "files have changed") {
		t.Errorf("touched files: %s %s", resp.Status, got)
	}
	for name, test := range map[string]struct {
		cfg []func(*Config)
		f   *fake
		why string
	}{
		"reference":        {[]func(*Config){model(Model{Name: "o", Path: same})}, &fake{}, "another model"},
		"option":           {[]func(*Config){model(Model{Name: "n", Path: same, Args: []string{"--quantization=fp8"}})}, &fake{}, "another model"},
		"variable":         {[]func(*Config){model(Model{Name: "n", Path: same, Env: []string{"VLLM_X=1"}})}, &fake{}, "another model"},
		"files":            {[]func(*Config){model(Model{Name: "n", Path: folder("b")})}, &fake{}, "another model"},
		"adapter":          {[]func(*Config){model(Model{Name: "n", Path: same}), adapter(folder("x"))}, &fake{}, "another model"},
		"unknown adapter":  {[]func(*Config){model(Model{Name: "n", Path: same}), adapter("")}, &fake{}, "adapter"},
		"parser":           {[]func(*Config){model(Model{Name: "n", Path: same, Args: []string{"--reasoning_parser=x"}})}, &fake{}, "--reasoning-parser"},
		"sidecar":          {[]func(*Config){model(Model{Name: "n", Attached: true})}, &fake{}, "somebody else"},
		"prompt":           {[]func(*Config){model(Model{Name: "n", Path: same})}, &fake{prompt: "Today is Monday. "}, "prompt reads otherwise"},
		"a vLLM too old":   {[]func(*Config){model(Model{Name: "n", Path: same})}, &fake{deaf: true}, "version of vLLM"},
		"another variable": {[]func(*Config){model(Model{Name: "n", Path: same, Env: []string{"HF_TOKEN=x"}})}, &fake{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			by, url := served(t, test.f, test.cfg...)
			resp, got := post(t, by, url+pathChat, hello, piece)
			if refused := resp.StatusCode == http.StatusBadRequest; refused != (test.why != "") || !strings.Contains(got, test.why) {
				t.Errorf("got %s %.500s, want a refusal with %q", resp.Status, got, test.why)
			}
		})
	}
}

// TestDefaultsOfTheModel: the model's generation_config.json counts if vLLM reads it.
func TestDefaultsOfTheModel(t *testing.T) {
	const endless = `{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true}`
	for name, test := range map[string]struct {
		config string
		args   []string
		named  bool
		body   string
		why    string
		most   int
	}{
		"none":               {body: endless},
		"a limit":            {config: `{"max_new_tokens":7}`, body: endless, most: 7},
		"a limit not read":   {config: `{"max_new_tokens":7}`, args: []string{"--generation-config=vllm"}, body: endless},
		"a penalty":          {config: `{"presence_penalty":1}`, body: hello, why: "penalty"},
		"broken":             {config: `{`, body: hello, why: "can't be read"},
		"elsewhere":          {args: []string{"--generation-config", "/x"}, body: hello, why: "--generation-config"},
		"overridden":         {args: []string{"--override-generation-config", "{}"}, body: hello, why: "--override-generation-config"},
		"of a name":          {named: true, body: endless, why: "max_tokens"},
		"of a name, limited": {named: true, body: hello},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HF_HUB_CACHE", t.TempDir()) // empty
			m := Model{Name: "n", Path: t.TempDir(), Args: test.args}
			if test.named {
				m.Path = "org/name"
			}
			if test.config != "" {
				if err := os.WriteFile(filepath.Join(m.Path, "generation_config.json"), []byte(test.config), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			by := New(Config{Model: func() Model { return m }})
			a, why := qualify(pathChat, []byte(test.body))
			if why != "" {
				t.Fatal(why)
			}
			got, why := by.model(a, true)
			if got.most != test.most || (why != "") != (test.why != "") || !strings.Contains(why, test.why) {
				t.Errorf("got %+v, %q", got, why)
			}
		})
	}
}

// TestDefaultsAreReadWithTheFiles: a new stream relies on the last reading of generation_config.json, and a continued one reads it
// again.
func TestDefaultsAreReadWithTheFiles(t *testing.T) {
	m := Model{Name: "n", Path: t.TempDir()}
	write := func(config string) {
		if err := os.WriteFile(filepath.Join(m.Path, "generation_config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"max_new_tokens":7}`)
	by := New(Config{Model: func() Model { return m }})
	a, _ := qualify(pathChat, []byte(hello))
	for range 2 {
		if got, why := by.model(a, true); got.most != 7 || why != "" {
			t.Fatalf("got %+v, %q", got, why)
		}
		by.seen.looked = time.Now().Add(time.Hour) // it is never long ago
		write(`{"max_new_tokens":70}`)
	}
	if _, why := by.model(a, false); !strings.Contains(why, "files have changed") {
		t.Errorf("a stream goes on: %q", why)
	}
}

// TestWhatVLLMSaysInTheMiddle: vLLM's own failures are cuts, those of the request go to the client, and events beyond plain text end the
// state.
func TestWhatVLLMSaysInTheMiddle(t *testing.T) {
	const chunk = `data: {"id":"x","created":1,"model":"m","choices":[{"index":0,"delta":%s,"finish_reason":%s,"token_ids":%s}]}` + "\n\n"
	for name, test := range map[string]struct {
		event string
		cut   bool
		lost  bool
	}{
		"an error of its own":      {event: `data: {"error":{"message":"EngineCore encountered an issue","code":500}}` + "\n\n", cut: true},
		"an error of the request":  {event: `data: {"error":{"message":"bad","code":400}}` + "\n\n"},
		"an abort":                 {event: fmt.Sprintf(chunk, `{"content":""}`, `"abort"`, `[]`), cut: true},
		"thoughts":                 {event: fmt.Sprintf(chunk, `{"reasoning":"hm"}`, `null`, `[5001]`), lost: true},
		"a call":                   {event: fmt.Sprintf(chunk, `{"content":"","tool_calls":[{}]}`, `null`, `[5001]`), lost: true},
		"a parser that holds back": {event: fmt.Sprintf(chunk, `{}`, `null`, `[5001]`), lost: true},
		"text without tokens":      {event: fmt.Sprintf(chunk, `{"content":"a"}`, `null`, `[]`), lost: true},
		"ids that are none":        {event: fmt.Sprintf(chunk, `{"content":"a"}`, `null`, `"5"`), lost: true},
		"a comment":                {event: ": ping\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			by, url := served(t, &fake{instead: test.event})
			resp, got := post(t, by, url+pathChat, hello, control.StateNew)
			if resp.Header.Get(control.HeaderState) != "" {
				t.Fatalf("not told: %v", resp.Header)
			}
			if cut := !strings.Contains(got, "[DONE]"); cut != test.cut {
				t.Errorf("got %q", got)
			}
			var known relay.State
			known.Take([]byte(got))
			s, ok := parse(known.Header())
			if !ok || s.lost != test.lost {
				t.Errorf("state %q", known.Header())
			}
			if test.lost {
				if resp, got := post(t, by, url+pathChat, hello, known.Header()); resp.StatusCode != http.StatusBadRequest || !strings.Contains(got, "more than text") {
					t.Errorf("got %s %s", resp.Status, got)
				}
			}
		})
	}
}

// TestAnOldVLLMIsAskedOnce for IDs: its streams stay unchanged.
func TestAnOldVLLMIsAskedOnce(t *testing.T) {
	f := &fake{deaf: true}
	by, url := served(t, f)
	_, plain := post(t, by, url+pathChat, hello, "")
	for i := range 2 {
		resp, got := post(t, by, url+pathChat, hello, control.StateNew)
		if resp.Header.Get(control.HeaderState) != notTold || gocmp.Diff(told(t, plain, false), told(t, got, false)) != "" {
			t.Errorf("%d: got %v %q", i, resp.Header, got)
		}
		if asked := f.bodies[i+1]["return_token_ids"] != nil; asked != (i == 0) {
			t.Errorf("%d: asked for ids: %v", i, asked)
		}
	}
}

// TestOtherPaths pass unchanged.
func TestOtherPaths(t *testing.T) {
	f := &fake{}
	by, url := served(t, f)
	resp, got := post(t, by, url+"/v1/models", `{"messages":[]}`, control.StateNew)
	if !strings.Contains(got, "max_model_len") || !strings.Contains(resp.Header.Get(control.HeaderState), "/v1/models") {
		t.Errorf("got %v %s", resp.Header, got)
	}
	if resp, got := post(t, by, url+"/v1/messages", `{"messages":[]}`, "id:1::0:m:1,2"); resp.StatusCode != http.StatusBadRequest || !strings.Contains(got, "stream_cut") {
		t.Errorf("a stream of another runtime's: got %s %s, want it refused", resp.Status, got)
	}
}

func FuzzState(f *testing.F) {
	f.Add("ids:a%3Ab:12:m:00ff:3:aa:-;1,2;2<3;f4;u")
	f.Add("ids:a:1:m:x:3:y:x")
	f.Add("ids:a:1:m:x:3:y:5<1")
	f.Add("ids:a:1:m:x:9223372036854775807:y:9223372036854775807;f-;u")
	f.Add("ids:a:-1:m:x:-3:y:1,2;99999999999999999999<3")
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := parse(text)
		if !ok {
			return
		}
		if s.prompt <= 0 || s.prompt+len(s.tokens) <= 0 || slices.ContainsFunc(s.tokens, func(t int64) bool { return t < 0 || t != int64(int32(t)) }) {
			t.Fatalf("%q: %+v", text, s)
		}
		again, ok := parse(s.head() + piece(s.tokens, 0, s.finished))
		if !ok {
			t.Fatalf("%q: its state is not read", text)
		}
		again.counted, again.lost = s.counted, s.lost
		if diff := gocmp.Diff(s, again, gocmp.AllowUnexported(stream{})); diff != "" && len(s.tokens) > 0 {
			t.Errorf("%q:\n%s", text, diff)
		}
	})
}
