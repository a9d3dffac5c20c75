package relay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/relay"
)

const (
	word     = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n"
	lookLike = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"finish_reason\\\":\\\"stop\\\" data: [DONE]\"},\"finish_reason\":null}]}\n\n"
	finish   = "data: {\"choices\":[{\"delta\":{},\"finish_reason\": \"stop\"}]}\n\n"
	done     = "data: [DONE]\n\n"
	failed   = "data: {\"error\":{\"message\":\"m\"}}\n\n"
)

// cut splits text into pieces of n bytes.
func cut(text string, n int) (pieces []string) {
	for text != "" {
		k := min(n, len(text))
		pieces = append(pieces, text[:k])
		text = text[k:]
	}
	return pieces
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name, text    string
		style         api.Stream
		proper, early bool // complete after a proper end, and after any end
	}{
		{"[DONE]", word + done, api.StreamCompletion, true, true},
		{"no space", "data:[DONE]\n\n", api.StreamCompletion, true, true},
		{"CRLF", "data: x\r\n\r\ndata: [DONE]\r\n\r\n", api.StreamCompletion, true, true},
		{"CR", "data: x\r\rdata: [DONE]\r\r", api.StreamCompletion, true, true},
		{"no line's end", word + "data: [DONE]", api.StreamCompletion, true, true},
		{"a finish reason", word + finish, api.StreamCompletion, true, false},
		{"SGLang's own finish reason", `data: {"text":"x","meta_info":{"finish_reason":{"type":"stop"}}}` + "\n\n", api.StreamCompletion, true, false},
		{"llama.cpp's own end", `data: {"content":"","stop":true}` + "\n\n", api.StreamCompletion, true, false},
		{"neither", word, api.StreamCompletion, false, false},
		{"a text like an end", lookLike, api.StreamCompletion, false, false},
		{"an error", word + failed, api.StreamCompletion, true, true},
		{"an error of null is none", `data: {"error":null,"choices":[]}` + "\n\n", api.StreamCompletion, false, false},
		{"an error event", "event: error\ndata: {}\n\n", api.StreamCompletion, true, true},
		{"a comment like an end", ": data: [DONE]\n\n", api.StreamCompletion, false, false},
		{"empty", "", api.StreamCompletion, false, false},
		{"responses", "event: response.completed\ndata: {}\n\n", api.StreamResponses, true, true},
		{"responses without names", "data: {\"type\" : \"response.failed\"}\n\n", api.StreamResponses, true, true},
		{"responses, cut", "event: response.created\ndata: {}\n\n", api.StreamResponses, false, false},
		{"another style's end", "event: message_stop\ndata: {}\n\n", api.StreamResponses, false, false},
		{"messages", "event: message_stop\ndata: {}\n\n", api.StreamMessages, true, true},
		{"messages, cut", "event: message_start\ndata: {}\n\n", api.StreamMessages, false, false},
		{"plain", word, api.StreamPlain, true, false},
		{"lines", `{"message":{"content":"x"},"done":false}` + "\n" + `{"done":true}` + "\n", api.StreamLines, true, true},
		{"lines with spaces", `{ "a": 1, "done" : true }` + "\r\n", api.StreamLines, true, true},
		{"lines, an error", `{"error":"m"}` + "\n", api.StreamLines, true, true},
		{"lines, cut", `{"message":{"content":"\"done\":true"},"done":false}` + "\n", api.StreamLines, false, false},
	} {
		sizes := []int{1, 2, 3, 7, 1000}
		if strings.HasPrefix(tc.name, "lines") { // a line of JSON is judged whole
			sizes = []int{1000}
		}
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s/%d", tc.name, size), func(t *testing.T) {
				j := relay.NewJudge(tc.style)
				for _, p := range cut(tc.text, size) {
					j.See([]byte(p))
				}
				if j.Whole(true) != tc.proper || j.Whole(false) != tc.early {
					t.Errorf("%q: whole after a proper end %t, after any %t; want %t and %t", tc.text, j.Whole(true), j.Whole(false), tc.proper, tc.early)
				}
			})
		}
	}
}

// TestNestedDone checks that a tool call with an argument named done does not end the stream.
func TestNestedDone(t *testing.T) {
	j := relay.NewJudge(api.StreamLines)
	j.See([]byte(`{"message":{"tool_calls":[{"function":{"arguments":{"done":true,"error":"x"}}}]},"done":false}` + "\n"))
	if j.Whole(true) {
		t.Error("an argument of a tool ended the stream")
	}
}

func TestALineLongerThanABuffer(t *testing.T) {
	for _, tc := range []struct {
		style api.Stream
		line  string
	}{
		{api.StreamCompletion, `data: {"x":"` + strings.Repeat("y", 5000) + `","finish_reason" : "length","z":"` + strings.Repeat("y", 5000) + `"}`},
		{api.StreamLines, `{"x":"` + strings.Repeat("y", 5000) + `","done":true,"z":"` + strings.Repeat("y", 5000) + `"}`},
		{api.StreamResponses, `data: {"type":"response.completed","x":"` + strings.Repeat("y", 5000) + `"}`},
	} {
		for size := 1; size < 100; size++ {
			j := relay.NewJudge(tc.style)
			for _, p := range cut(tc.line, size) {
				j.See([]byte(p))
			}
			if !j.Whole(true) {
				t.Fatalf("style %d in pieces of %d bytes: the end was not seen", tc.style, size)
			}
		}
	}
}

// TestErrorStandsAlone checks that our own event is separate, wherever the stream was cut.
func TestErrorStandsAlone(t *testing.T) {
	cause := api.Errorf(502, api.CodeStreamCut, "the line\nbroke")
	for _, tc := range []struct {
		style      api.Stream
		text, want string
	}{
		{api.StreamCompletion, word, ""}, {api.StreamCompletion, word + "data: {\"cho", "\n\n"}, {api.StreamCompletion, "event: x\ndata: {}\n", "\n"},
		{api.StreamCompletion, "data: x\r\n\r\n", ""}, {api.StreamCompletion, "data: x\r", "\n"}, {api.StreamMessages, "event: ping", "\n\n"},
		{api.StreamLines, "{}\n", ""}, {api.StreamLines, "{}", "\n"}, {api.StreamResponses, "event: response.created\ndata: {\"type\":\"response.created\"}\n\n", ""}, {api.StreamCompletion, "", ""},
	} {
		j := relay.NewJudge(tc.style)
		j.See([]byte(tc.text))
		if got := string(j.Rest()); got != tc.want {
			t.Errorf("after %q: %q, want %q", tc.text, got, tc.want)
		}
		event := string(tc.style.Error(cause, j.Next()))
		last := strings.TrimRight(event[strings.Index(event, "{"):], "\n")
		if !json.Valid([]byte(last)) || !strings.Contains(last, `the line\nbroke`) {
			t.Errorf("style %d: %q is no event with an error", tc.style, event)
		}
		end := relay.NewJudge(tc.style)
		if end.See([]byte(event)); !end.Whole(false) {
			t.Errorf("style %d: a judge does not take %q for an end", tc.style, event)
		}
	}
}

// TestErrorIsNumbered checks that our own event has the number after the server's, however these arrive.
func TestErrorIsNumbered(t *testing.T) {
	text := ""
	for n := range 12 {
		text += fmt.Sprintf("event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":%q,\"sequence_number\":%d,\"logprobs\":[]}\n\n", `"sequence_number":99`+strings.Repeat("x", 90), n)
	}
	for size := 1; size < 300; size++ {
		j := relay.NewJudge(api.StreamResponses)
		for _, p := range cut(text, size) {
			j.See([]byte(p))
		}
		if j.Next() != 12 {
			t.Fatalf("in pieces of %d bytes: number %d, want 12", size, j.Next())
		}
	}
	event := string(api.StreamResponses.Error(api.Errorf(502, api.CodeStreamCut, "it broke"), 12))
	want := "event: error\ndata: " + `{"type":"error","sequence_number":12,"code":"stream_cut","message":"it broke","param":null,"error":{"message":"it broke","type":"`
	if !strings.HasPrefix(event, want) || !strings.HasSuffix(event, "}}\n\n") {
		t.Errorf("%q, want it to begin with %q", event, want)
	}
}

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		lines bool
		text  string
		want  []string
	}{
		{false, "data: a\n\ndata: b\n\n", []string{"data: a\n\n", "data: b\n\n"}},
		{false, "event: x\r\ndata: a\r\n\r\n: c\r\n\r\nd", []string{"event: x\r\ndata: a\r\n\r\n", ": c\r\n\r\n", "d"}},
		{false, "a\r\rb\n\rc\r\n\nd", []string{"a\r\r", "b\n\r", "c\r\n\n", "d"}},
		{false, "\n\na", []string{"\n", "\n", "a"}},
		{true, "{}\n{}\r\n{", []string{"{}\n", "{}\r\n", "{"}},
	} {
		if got := events(tc.lines, tc.text, 1); !equal(got, tc.want) {
			t.Errorf("%q: got %q, want %q", tc.text, got, tc.want)
		}
	}
}

// events splits text that comes in pieces of n bytes. An LF after the CR that ended an event is counted to that
// event.
func events(lines bool, text string, n int) (out []string) {
	s := relay.Splitter{Lines: lines}
	var kept string
	for _, p := range cut(text, n) {
		if end := s.Split([]byte(p)); end > 0 {
			out = append(out, kept+p[:end])
			kept, p = "", p[end:]
		}
		kept += p
	}
	if kept != "" {
		out = append(out, kept)
	}
	for i := 1; i < len(out); i++ {
		if strings.HasSuffix(out[i-1], "\r") && strings.HasPrefix(out[i], "\n") {
			out[i-1], out[i] = out[i-1]+"\n", out[i][1:]
			if out[i] == "" {
				out = append(out[:i], out[i+1:]...)
			}
		}
	}
	return out
}

func equal(a, b []string) bool { return strings.Join(a, "\x00") == strings.Join(b, "\x00") }

// Fuzz cuts a text anywhere and compares events and verdict with a twin that reads line by line.
func Fuzz(f *testing.F) {
	for _, s := range []string{
		word + finish + done, lookLike, "a\r\n\r\nb", "\r\r", "\n\n\n", failed, "data: [DONE]", "x\n\r\ny", "event: error\r\r", "a\r\r\nb\n",
		"data:" + strings.Repeat(" ", 40) + "[DONE]", "{\"done\":true}\n{}\n",
	} {
		f.Add(s, uint8(3), false)
		f.Add(s, uint8(1), true)
	}
	f.Fuzz(func(t *testing.T, text string, size uint8, lines bool) {
		n := int(size%50) + 1
		one := events(lines, text, 1)
		if got := strings.Join(one, ""); got != text {
			t.Fatalf("%q came out as %q", text, got)
		}
		if want := slowEvents(lines, text); !equal(one, want) {
			t.Fatalf("%q: got %q, want %q", text, one, want)
		}
		// In larger pieces some events come together, but none is split.
		at, ends := 0, map[int]bool{}
		for _, e := range one {
			at += len(e)
			ends[at] = true
		}
		at = 0
		for _, e := range events(lines, text, n) {
			if at += len(e); !ends[at] {
				t.Fatalf("%q in pieces of %d: an event ends at %d, want one of %v", text, n, at, ends)
			}
		}
		if lines {
			return
		}
		whole, parts := relay.NewJudge(api.StreamCompletion), relay.NewJudge(api.StreamCompletion)
		whole.See([]byte(text))
		for _, p := range cut(text, n) {
			parts.See([]byte(p))
		}
		if whole.Whole(true) != parts.Whole(true) || whole.Whole(false) != parts.Whole(false) || !bytes.Equal(whole.Rest(), parts.Rest()) {
			t.Fatalf("%q: the verdict differs in pieces of %d", text, n)
		}
	})
}

// slowEvents is events, byte by byte.
func slowEvents(lines bool, text string) (out []string) {
	begin, empty := 0, true
	for at := 0; at < len(text); at++ {
		c := text[at]
		if c != '\n' && (c != '\r' || lines) {
			empty = false
			continue
		}
		if c == '\r' && at+1 < len(text) && text[at+1] == '\n' {
			at++
		}
		if empty || lines {
			out = append(out, text[begin:at+1])
			begin = at + 1
		}
		empty = true
	}
	if begin < len(text) {
		out = append(out, text[begin:])
	}
	return out
}

func Benchmark(b *testing.B) {
	for name, text := range map[string]string{
		"completion": word,
		"lines":      `{"model":"m","created_at":"2026-01-01T00:00:00.000000000Z","message":{"role":"assistant","content":" w0"},"done":false}` + "\n",
	} {
		style := api.StreamCompletion
		if name == "lines" {
			style = api.StreamLines
		}
		b.Run(name, func(b *testing.B) {
			j := relay.NewJudge(style)
			s := relay.Splitter{Lines: style == api.StreamLines}
			p := []byte(text)
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				j.See(p[:s.Split(p)])
			}
		})
	}
}

// TestAgentEnds checks the end of AgentServer's streams.
func TestAgentEnds(t *testing.T) {
	broken := relay.NewJudge(api.StreamAgent)
	broken.See([]byte("data: {}\n\n"))
	if !broken.Whole(true) || broken.Whole(false) {
		t.Error("a stream of AgentServer may end well anywhere, and may not break off before [DONE]")
	}
}

// TestUsageOfCaches checks that cached tokens count as part of the prompt, whether or not an API's count includes
// them.
func TestUsageOfCaches(t *testing.T) {
	for _, c := range []struct {
		style                     api.Stream
		answer                    string
		prompt, cached, generated int
	}{
		{api.StreamCompletion, `{"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}`, 10, 8, 3},
		{api.StreamCompletion, `{"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":null}}`, 10, 0, 3},
		{api.StreamCompletion, `{"usage":{"prompt_tokens":10,"completion_tokens":3},"timings":{"cache_n":7,"prompt_n":3}}`, 10, 7, 3},
		{api.StreamCompletion, `{"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":99}}}`, 10, 10, 3},
		{api.StreamResponses, `{"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":8},"output_tokens":3}}`, 10, 8, 3},
		{api.StreamMessages, `{"usage":{"input_tokens":2,"cache_creation_input_tokens":1,"cache_read_input_tokens":8,"output_tokens":3}}`, 11, 8, 3},
		{api.StreamMessages, `{"usage":{"input_tokens":10,"cache_read_input_tokens":null,"output_tokens":3}}`, 10, 0, 3},
		{api.StreamMessages, `{"type":"message","stop_sequence":"message_start","usage":{"input_tokens":10,"output_tokens":3}}`, 10, 0, 3}, // words of clients
		{api.StreamPlain, `{"message":{"tool_calls":[{"function":{"arguments":{"done":false,"eval_count":1}}}]},"done":true,"prompt_eval_count":10,"eval_count":3}`, 10, 0, 3},
		{api.StreamLines, `{"message":{"tool_calls":[{"function":{"arguments":{"done":false,"eval_count":1}}}]},"done":true,"prompt_eval_count":10,"eval_count":3}`, 10, 0, 3},
		{api.StreamLines, `{"message":{"tool_calls":[{"function":{"arguments":{"eval_count":1}}}]},"done":false}`, 0, 0, 0},
		{api.StreamLines, `{ "done" : true, "prompt_eval_count" :	10, "eval_count": 3 }`, 10, 0, 3},
		{api.StreamCompletion, `{"choices": [], "usage":	{"prompt_tokens": 10, "completion_tokens": 3}}`, 10, 0, 3},
		{api.StreamPlain, `{"embeddings":[[1]],"prompt_eval_count":10}`, 10, 0, 0},
		{api.StreamResponses, `{"usage": {"input_tokens":10,"output_tokens":3},"user":"usage","metadata":{"usage":"x"}}`, 10, 0, 3},
	} {
		u := relay.Usage{Style: c.style}
		u.Part([]byte(c.answer))
		if u.Prompt != c.prompt || u.Cached != c.cached || u.Generated != c.generated {
			t.Errorf("%s: %d of input, %d cached, %d of output", c.answer, u.Prompt, u.Cached, u.Generated)
		}
	}
	list := `[` + strings.Repeat(`{"text":"a","stop":"usage","meta_info":{"finish_reason":{"matched":"}"},"prompt_tokens":10,"cached_tokens":4,"completion_tokens":3}},`, 40) + `{}]`
	llama := `[` + strings.Repeat(`{"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}},"timings":{"cache_n":4,"prompt_n":6,"predicted_n":3}},`, 40) + `{}]`
	own := `[` + strings.Repeat(`{"tokens_predicted":3,"generation_settings":{"stop":["usage"]},"timings":{"cache_n":4,"prompt_n":6,"predicted_n":3}},`, 40) + `{}]`
	for _, answer := range []string{list, llama, own} {
		for _, size := range []int{1, 100, len(answer)} {
			var u relay.Usage
			for _, part := range cut(answer, size) {
				u.Part([]byte(part))
			}
			if u.Prompt != 400 || u.Cached != 160 || u.Tokens() != 120 {
				t.Errorf("a list in parts of %d: %d of input, %d cached, %d of output: %.100s", size, u.Prompt, u.Cached, u.Tokens(), answer)
			}
		}
	}
	u := relay.Usage{Style: api.StreamCompletion}
	for _, said := range []string{"10,4,1", "20,0,1", "10,4,3", "20,0,2"} {
		var prompt, cached, generated int
		_, _ = fmt.Sscanf(said, "%d,%d,%d", &prompt, &cached, &generated)
		u.See(fmt.Appendf(nil, "data: {\"text\":\"a\",\"meta_info\":{\"prompt_tokens\":%d,\"cached_tokens\":%d,\"completion_tokens\":%d},\"index\":%d}\n\n", prompt, cached, generated, prompt), 0)
	}
	if u.Prompt != 30 || u.Cached != 4 || u.Tokens() != 5 {
		t.Errorf("a stream of two prompts: %d of input, %d cached, %d of output", u.Prompt, u.Cached, u.Tokens())
	}
	for n := range 10_000 { // a server that makes up indexes fills no memory
		u.See(fmt.Appendf(nil, "data: {\"meta_info\":{\"prompt_tokens\":1,\"completion_tokens\":1},\"index\":%d}\n\n", n), 0)
	}
	if u.Prompt < 4000 || u.Prompt > 5000 {
		t.Errorf("10,000 answers of a stream are added up to %d, want the first 4,096", u.Prompt)
	}
	u = relay.Usage{Style: api.StreamCompletion}
	if got := string(u.Take([]byte("data: a\r\r: rouse-usage 1 0 1\ndata: b\r\r"))); got != "data: a\r\rdata: b\r\r" {
		t.Errorf("with lines that end in CR the client gets %q", got)
	}
	u = relay.Usage{Style: api.StreamMessages}
	u.See([]byte("data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":2,\"cache_read_input_tokens\":8,\"output_tokens\":0}}}\n\n"), 0)
	u.See([]byte("data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":3}}\n\n"), 1)
	if u.Prompt != 10 || u.Cached != 8 || u.Generated != 3 {
		t.Errorf("a stream: %d of input, %d cached, %d of output", u.Prompt, u.Cached, u.Generated)
	}
}

// TestUsageThatCannotBe: what an instance reports is not so large that sums of it overflow, nor negative.
func TestUsageThatCannotBe(t *testing.T) {
	for said, want := range map[string]string{
		"3 2 5": "3 2 5",
		"9223372036854775807 1 9223372036854775807": "0 0 0",
		"3 2 -5":    "0 0 0",
		"3 2 1e300": "0 0 0",
		"3 2 NaN":   "0 0 0",
		"3 2 5 7":   "0 0 0",
	} {
		var m relay.Usage
		if m.Tell(said); m.Told() != want {
			t.Errorf("%s: %s, want %s", said, m.Told(), want)
		}
	}
}

// TestLinesLikeEarlierOnes checks that each pair of lines is judged and counted as its lines are by themselves: of lines that differ only
// in their text the second is not read.
func TestLinesLikeEarlierOnes(t *testing.T) {
	shapes := []string{
		`{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}`,
		`{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":"stop"}]}`,
		`{"choices":[{"index":0,"text":"%s","finish_reason":null}],"usage":{"prompt_tokens":3,"completion_tokens":7}}`,
		`{"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"%s"},"finish_reason":null}]}`,
		`{"content":"%s","stop":true}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}`,
	}
	texts := []string{"", "a", "b c", `\\`, `a\\`, `\"`, `a\",\"finish_reason\":\"stop\",\"b\":\"`, `a"},"finish_reason":"stop","b":{"c":"`, `a\",\"usage\":{\"completion_tokens\":9},\"b\":\"`}
	var lines []string
	for _, shape := range shapes {
		for _, text := range texts {
			lines = append(lines, fmt.Sprintf("data: "+shape+"\n\n", text))
		}
	}
	for _, style := range []api.Stream{api.StreamCompletion, api.StreamMessages} {
		for i := range len(lines) * len(lines) {
			judge, usage := relay.NewJudge(style), relay.Usage{Style: style}
			whole, events, tokens := false, 0, 0
			pair := []string{lines[i%len(lines)], lines[i/len(lines)]}
			for _, line := range pair {
				alone, counted := relay.NewJudge(style), relay.Usage{Style: style}
				alone.See([]byte(line))
				counted.See([]byte(line), 1)
				whole = whole || alone.Whole(true)
				events += counted.Events
				if tokens += counted.Events; counted.Generated > 0 {
					tokens = counted.Generated
				}
				judge.See([]byte(line))
				usage.See([]byte(line), 1)
			}
			if judge.Whole(true) != whole || usage.Events != events || usage.Tokens() != tokens {
				t.Fatalf("%q: whole %v, %d events, %d tokens; by themselves %v, %d, %d", pair, judge.Whole(true), usage.Events, usage.Tokens(), whole, events, tokens)
			}
		}
	}
}
