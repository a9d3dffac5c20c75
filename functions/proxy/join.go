package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Streamer is implemented by a [Dialect] whose runtime reports times only in streams. The proxy joins such streams.
type Streamer interface {
	// Stream makes the body ask for a stream with its usage. It returns false if the body already does, or is no generation.
	Stream(path string, body *jsonfield.Object) bool
}

const (
	maxLine   = 1 << 20
	maxJoined = 16 << 20 // of a joined answer
)

type whole struct {
	ID          string          `json:"id"`
	Object      string          `json:"object"`
	Created     int64           `json:"created"`
	Model       string          `json:"model"`
	Fingerprint string          `json:"system_fingerprint,omitempty"`
	Choices     []*choice       `json:"choices"`
	Usage       json.RawMessage `json:"usage,omitempty"`
}

type choice struct {
	Text     *string   `json:"text,omitempty"`
	Index    int       `json:"index"`
	Delta    *message  `json:"delta,omitempty"`
	Message  *message  `json:"message,omitempty"`
	Finish   *string   `json:"finish_reason"`
	Logprobs *logprobs `json:"logprobs,omitempty"`

	text, content, reasoning strings.Builder
}

type message struct {
	Role      string            `json:"role"`
	Content   string            `json:"content"`
	Reasoning string            `json:"reasoning,omitempty"`
	ToolCalls []json.RawMessage `json:"tool_calls,omitempty"`
}

type logprobs struct {
	Content []json.RawMessage `json:"content"`
}

func (w *whole) add(chunk *whole) {
	if w.ID == "" {
		w.ID, w.Object, w.Model, w.Fingerprint = chunk.ID, chunk.Object, chunk.Model, chunk.Fingerprint
		if w.Object == "chat.completion.chunk" {
			w.Object = "chat.completion"
		}
	}
	w.Created = max(w.Created, chunk.Created)
	if len(chunk.Usage) > 0 {
		w.Usage = chunk.Usage
	}
	for _, c := range chunk.Choices {
		if c == nil || c.Index < 0 || c.Index >= maxChoices {
			continue
		}
		for len(w.Choices) <= c.Index {
			w.Choices = append(w.Choices, &choice{Index: len(w.Choices)})
		}
		w.Choices[c.Index].add(c)
	}
}

const maxChoices = 128

func (c *choice) add(piece *choice) {
	if piece.Text != nil {
		c.text.WriteString(*piece.Text)
		c.Text = piece.Text // not nil: the choice has text
	}
	if d := piece.Delta; d != nil {
		if c.Message == nil {
			c.Message = &message{Role: d.Role}
		}
		c.content.WriteString(d.Content)
		c.reasoning.WriteString(d.Reasoning)
		c.Message.ToolCalls = append(c.Message.ToolCalls, d.ToolCalls...)
	}
	if piece.Finish != nil {
		c.Finish = piece.Finish
	}
	if l := piece.Logprobs; l != nil {
		if c.Logprobs == nil {
			c.Logprobs = &logprobs{}
		}
		c.Logprobs.Content = append(c.Logprobs.Content, l.Content...)
	}
}

func (w *whole) end() *whole {
	for _, c := range w.Choices {
		if c.Text != nil {
			text := c.text.String()
			c.Text = &text
		}
		if c.Message != nil {
			c.Message.Content, c.Message.Reasoning = c.content.String(), c.reasoning.String()
		}
	}
	return w
}

func (x *exchange) join(ctx context.Context, resp *http.Response) {
	answer, failure, err := x.joined(resp)
	if err != nil {
		x.brokenBeforeFirstByte(ctx, err)
		return
	}
	var text bytes.Buffer
	status := http.StatusOK
	if failure != nil {
		status = statusOf(failure)
		x.log("runtime ends a stream with an error", fmt.Errorf("%.500q", failure))
		text.Write(x.cfg.Dialect.Failure(x.r.URL.Path, status, failure))
	} else if err := json.NewEncoder(&text).Encode(answer.end()); err != nil {
		x.brokenBeforeFirstByte(ctx, err)
		return
	}
	x.outcome.Status, resp.StatusCode = status, status
	resp.Header.Set("Content-Type", "application/json")
	resp.Header.Set("Content-Length", strconv.Itoa(text.Len()))
	x.header(resp)
	x.write(text.Bytes())
}

func (x *exchange) joined(resp *http.Response) (answer *whole, failure []byte, err error) {
	lines := bufio.NewScanner(io.LimitReader(x.moving(resp), maxJoined))
	lines.Buffer(nil, maxLine)
	answer = &whole{}
	for lines.Scan() {
		data, found := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !found {
			continue
		}
		x.live.generated(x.meter.See(lines.Bytes(), time.Since(x.began)))
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			return answer, nil, nil
		}
		if what, failed := jsonfield.Find(data, "error"); failed && string(what) != "null" {
			return nil, bytes.Clone(data), nil
		}
		var chunk whole
		if err := json.Unmarshal(data, &chunk); err != nil {
			return nil, nil, fmt.Errorf("read an event of the runtime: %w", err)
		}
		answer.add(&chunk)
	}
	if err := lines.Err(); err != nil {
		return nil, nil, err
	}
	return nil, nil, io.ErrUnexpectedEOF
}
