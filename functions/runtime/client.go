package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/rouse-dev/rouse/api"
)

// maxAnswer bounds what is read of a server's answer to one of our own calls.
const maxAnswer = 1 << 20

// client calls a model server on our own account.
type client struct {
	http *http.Client
	// chat says that the server has no /v1/completions, which is found out by the first probe.
	chat atomic.Bool
}

// statusError is an answer that is not 200: the server is there.
type statusError struct {
	path    string
	status  int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answers %d: %s", e.path, e.status, e.message)
}

// answered says whether err came from a server that answered.
func answered(err error) bool {
	var status *statusError
	return errors.As(err, &status)
}

// call sends one request and reads the whole answer. A nil body sends none.
func (c *client) call(ctx context.Context, method string, e api.Endpoint, path string, body any) ([]byte, error) {
	var reader io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		reader = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, e.URL(path), reader)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call the runtime: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		message := strings.TrimSpace(string(raw[:min(len(raw), 500)]))
		return nil, &statusError{path: path, status: resp.StatusCode, message: message}
	}
	return raw, nil
}

// generation is what is read of a completion's answer.
type generation struct {
	Choices []struct {
		Text    string `json:"text"`
		Message struct {
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content"`
		} `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
}

// token reports why an answer proves no generated token, nil if it does. A
// first token that ends the text counts: its text is empty.
func (g generation) token() error {
	if len(g.Choices) == 0 {
		return errors.New("the answer has no choices")
	}
	c := g.Choices[0]
	if c.Text == "" && c.Message.Content == "" && c.Message.Reasoning == "" && g.Usage.CompletionTokens == 0 &&
		c.FinishReason != "stop" && c.FinishReason != "length" {
		return errors.New("the answer has no token: no text, no usage, no finish_reason")
	}
	return nil
}

// generate makes the server generate one token, by /v1/completions or, where it
// has none, by /v1/chat/completions.
func (c *client) generate(ctx context.Context, e api.Endpoint, model string) error {
	for {
		path, body := "/v1/completions", map[string]any{"model": model, "max_tokens": 1, "temperature": 0, "prompt": "a"}
		if c.chat.Load() {
			delete(body, "prompt")
			path, body["messages"] = "/v1/chat/completions", []any{map[string]any{"role": "user", "content": "a"}}
		}
		raw, err := c.call(ctx, http.MethodPost, e, path, body)
		var status *statusError
		// A 404 may also mean that the model is unknown; then chat says so too.
		if errors.As(err, &status) && (status.status == http.StatusNotFound || status.status == http.StatusMethodNotAllowed) && !c.chat.Load() {
			c.chat.Store(true)
			continue
		}
		if err != nil {
			c.chat.Store(false)
			return err
		}
		var g generation
		if err := json.Unmarshal(raw, &g); err != nil {
			return fmt.Errorf("probe by %s: the answer is not JSON: %w", path, err)
		}
		if err := g.token(); err != nil {
			return fmt.Errorf("probe by %s: %w", path, err)
		}
		return nil
	}
}

// firstModel asks the server which model it has.
func (c *client) firstModel(ctx context.Context, e api.Endpoint) (string, error) {
	raw, err := c.call(ctx, http.MethodGet, e, "/v1/models", nil)
	if err != nil {
		return "", err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(raw, &list); err != nil || len(list.Data) == 0 || list.Data[0].ID == "" {
		return "", &statusError{path: "/v1/models", status: http.StatusOK, message: "lists no model"}
	}
	return list.Data[0].ID, nil
}
