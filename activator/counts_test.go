package activator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// TestWhoLeavesIsCharged: a client that leaves is charged for its instance's work: the known part of a stream, and an
// estimate for an answer that is no stream. It is in the meter, in the metric, which its account is charged with too,
// and in the access log.
func TestWhoLeavesIsCharged(t *testing.T) {
	const (
		responses = "event: response.output_text.delta\ndata: {\"content_index\":0,\"delta\":\"hello hello hello hello hello hello hello hello hello hello\",\"item_id\":\"msg_1_0\",\"logprobs\":[],\"output_index\":0,\"sequence_number\":4,\"type\":\"response.output_text.delta\"}\n\n"
		messages  = "event: content_block_delta\ndata: {\"delta\":{\"text\":\"hello hello hello hello hello hello hello hello hello hello\",\"type\":\"text_delta\"},\"index\":0,\"type\":\"content_block_delta\"}\n\n"
		start     = "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":30,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":10,\"output_tokens\":1}},\"type\":\"message_start\"}\n\n"
		ours      = "event: response.output_item.added\ndata: {\"item\":{\"content\":[{\"type\":\"a.delta\"}]},\"type\":\"response.output_item.added\"}\n\n"
		chat      = "data: {\"choices\":[{\"delta\":{\"content\": \"hi\"},\"finish_reason\":null}]}\n\n"
	)
	for name, test := range map[string]struct {
		path, more string
		sends      []string // empty: no answer begins
		input      int      // negative: estimated
		output     int
	}{
		"a response":                    {"/v1/responses", `,"stream":true`, []string{ours, responses, responses, responses}, -1, 3},
		"a message":                     {"/v1/messages", `,"stream":true`, []string{start, messages, messages}, 40, 2},
		"a message whose tokens it had": {"/v1/messages", `,"stream":true`, []string{": rouse-usage 41 0 5\n" + messages, ": rouse-usage 41 0 9\n" + messages}, 41, 9},
		"a chat":                        {chatPath, `,"stream":true`, []string{chat, chat, chat}, -1, 3},
		"a chat of several tokens":      {chatPath, `,"stream":true`, []string{": rouse-usage 12 3 4\n" + chat, ": rouse-usage 12 3 8\n" + chat}, 12, 8},
		"one that says it itself":       {chatPath, `,"stream":true`, []string{chat, strings.Replace(chat, `]}`, `],"usage":{"prompt_tokens":12,"completion_tokens":6}}`, 1), chat}, 12, 7},
		"a stream before its beginning": {chatPath, `,"stream":true`, nil, -1, 0},
		"an answer with a limit":        {chatPath, `,"max_tokens":50`, nil, -1, 50},
		"an answer without one":         {"/v1/messages", ``, nil, -1, int(256)},
		"vectors":                       {"/v1/embeddings", ``, nil, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMetered(t)
			took := make(chan struct{})
			b := m.bench
			m.instances.fakes[0].chat = func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				close(took)
				if len(test.sends) > 0 {
					w.Header().Set("Content-Type", "text/event-stream")
					streamEvents(w, test.sends...)
				}
				<-r.Context().Done()
			}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			body := fmt.Sprintf(`{"model":"m"%s,"messages":[{"role":"user","content":"hello"}]}`, test.more)
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.ts.URL+test.path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer k-a")
			r.Header.Set("X-Rouse-Resume", "off")
			r.Header.Set("Content-Type", "application/json")
			left := make(chan struct{})
			go func() {
				defer close(left)
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					return
				}
				defer resp.Body.Close()
				lines := bufio.NewScanner(resp.Body)
				for n := 0; n < len(test.sends) && lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "data:") {
						n++
					}
					if strings.Contains(lines.Text(), "rouse-usage") {
						t.Errorf("the client gets %q", lines.Text())
					}
				}
				leave()
			}()
			<-took
			if len(test.sends) == 0 {
				leave()
			}
			<-left
			input := test.input
			if input < 0 {
				input = len(body) / 4
			}
			m.want(input, test.output, `"status":499`)
			if want := control.Cost(api.Tokens(input), api.Tokens(test.output)); m.uses.cost != want {
				t.Errorf("its turn cost %v, want %v", m.uses.cost, want)
			}
		})
	}
}
