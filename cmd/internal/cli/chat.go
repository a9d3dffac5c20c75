package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

type endpoint = api.Endpoint

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type chatOptions struct {
	model, system string
	maxTokens     int
	temperature   float64
	topP          float64 // 0: the model's own
	seed          int     // 0: none
}

// chatEvents are called for a streamed answer; each may be nil.
type chatEvents struct {
	comment func(string)
	text    func(string)
}

type measured struct {
	hold, wake, queue time.Duration // from Server-Timing
	firstToken, total time.Duration // since the request
	tokens            int
	fallback          string // the model that answered in place of the one asked, or ""
}

// leastRated is the shortest generation with a rate: a faster answer came from a buffer.
const leastRated = 20 * time.Millisecond

// rate counts tokens per second after the first, or 0.
func (m measured) rate() float64 {
	if m.tokens < 2 || m.total < m.firstToken+leastRated {
		return 0
	}
	return float64(m.tokens-1) / (m.total - m.firstToken).Seconds()
}

type chunk struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
		Code    any    `json:"code"` // or a number, of some model servers
	} `json:"error"`
}

// chat streams an answer. One that is cut off is an error.
func (c *client) chat(ctx context.Context, door endpoint, o chatOptions, messages []message, on chatEvents) (measured, error) {
	body := map[string]any{
		"model": o.model, "messages": messages, "stream": true, "temperature": o.temperature,
		"stream_options": map[string]bool{"include_usage": true},
	}
	if o.maxTokens > 0 {
		body["max_completion_tokens"] = o.maxTokens
	}
	if o.topP > 0 {
		body["top_p"] = o.topP
	}
	if o.seed > 0 {
		body["seed"] = o.seed
	}
	var m measured
	start := time.Now()
	resp, err := c.at(door).Open(ctx, http.MethodPost, "/v1/chat/completions", body)
	if err != nil {
		return m, err
	}
	defer resp.Body.Close()
	m.fallback = resp.Header.Get("Rouse-Fallback")
	done := false
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() && !done {
		if done, err = m.take(lines.Text(), start, on); err != nil {
			return m, err
		}
	}
	m.total = time.Since(start)
	if err := lines.Err(); err != nil {
		if ctx.Err() != nil {
			return m, ctx.Err()
		}
		return m, fmt.Errorf("the answer was cut: %w", err)
	}
	if !done {
		return m, errors.New("the answer was cut: it ended without [DONE]")
	}
	_, _ = io.Copy(io.Discard, resp.Body) // for the trailer
	m.timing(resp.Header.Values("Server-Timing"))
	m.timing(resp.Trailer.Values("Server-Timing"))
	return m, nil
}

func (m *measured) take(line string, start time.Time, on chatEvents) (done bool, err error) {
	if text, found := strings.CutPrefix(line, ":"); found {
		if to, found := strings.CutPrefix(text, " rouse fallback="); found {
			m.fallback = to
		}
		if on.comment != nil {
			on.comment(strings.TrimSpace(text))
		}
		return false, nil
	}
	data, found := strings.CutPrefix(line, "data:")
	if !found {
		return false, nil
	}
	if data = strings.TrimSpace(data); data == "[DONE]" {
		return true, nil
	}
	var got chunk
	if err := json.Unmarshal([]byte(data), &got); err != nil {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	if got.Error != nil {
		code, _ := got.Error.Code.(string)
		return false, fmt.Errorf("the answer broke off: %w", &api.Error{Code: code, Message: got.Error.Message})
	}
	if got.Usage != nil {
		m.tokens = got.Usage.CompletionTokens
	}
	for _, choice := range got.Choices {
		if m.firstToken == 0 {
			m.firstToken = time.Since(start)
		}
		if choice.Delta.Content != "" && on.text != nil {
			on.text(choice.Delta.Content)
		}
	}
	return false, nil
}

// timing reads Server-Timing: "hold;dur=1.2, wake;dur=3".
func (m *measured) timing(values []string) {
	for metric := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, rest, _ := strings.Cut(strings.TrimSpace(metric), ";")
		text, found := strings.CutPrefix(strings.TrimSpace(rest), "dur=")
		ms, err := strconv.ParseFloat(text, 64)
		if !found || err != nil {
			continue
		}
		d := time.Duration(ms * float64(time.Millisecond))
		switch name {
		case "hold":
			m.hold = d
		case "wake":
			m.wake = d
		case "queue":
			m.queue = d
		}
	}
}
