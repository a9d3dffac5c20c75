package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// maxAnswer bounds a server's answer to our own calls.
const maxAnswer = 16 << 20

type client struct {
	http *http.Client
	// way is the index in ways of the one that worked.
	way atomic.Int32
}

type statusError struct {
	path    string
	status  int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answers %d: %s", e.path, e.status, e.message)
}

func answered(err error) bool {
	var status *statusError
	return errors.As(err, &status)
}

// Missing reports whether err is an answer that there is no such path or method.
func Missing(err error) bool {
	var status *statusError
	return errors.As(err, &status) && slices.Contains([]int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}, status.status)
}

// says reports whether err is an answer with one of the words, in lower case.
func says(err error, words ...string) bool {
	var status *statusError
	if !errors.As(err, &status) {
		return false
	}
	m := strings.ToLower(status.message)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(m, w) })
}

// call reads the whole answer, which must be 2xx. A nil body sends none.
func (c *client) call(ctx context.Context, method string, e api.Endpoint, path string, body any) ([]byte, error) {
	if step := stepOf(path); step != "" {
		startupOf(ctx).Step(step)
	}
	var reader io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		reader = bytes.NewReader(raw)
	}
	return c.send(ctx, method, e, path, reader)
}

// send is call with an encoded body.
func (c *client) send(ctx context.Context, method string, e api.Endpoint, path string, body io.Reader) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.URL(path), body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call the runtime: %w", api.Unreached(err))
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	if len(raw) > maxAnswer {
		return nil, fmt.Errorf("%s %s: the answer has more than %d MiB", method, path, maxAnswer>>20)
	}
	if resp.StatusCode/100 != 2 {
		return nil, &statusError{path: path, status: resp.StatusCode, message: complains(raw)}
	}
	return raw, nil
}

func complains(body []byte) string {
	var e struct{ Error complaint }
	if json.Unmarshal(body, &e) == nil {
		if m, ok := str(e.Error.Message); ok && m != "" {
			return m
		}
	}
	var plain struct{ Error string } // Ollama's
	if json.Unmarshal(body, &plain) == nil && plain.Error != "" {
		return plain.Error
	}
	return strings.TrimSpace(string(body[:min(len(body), 500)]))
}

func (c *client) ask(ctx context.Context, method string, e api.Endpoint, path string, body, answer any) error {
	raw, err := c.call(ctx, method, e, path, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("%s %s: unexpected answer: %w", method, path, err)
	}
	return nil
}

// loadAdapter takes an answer with one of the words loaded for success.
func (c *client) loadAdapter(ctx context.Context, e api.Endpoint, a api.Adapter, loaded ...string) error {
	_, err := c.call(ctx, http.MethodPost, e, "/v1/load_lora_adapter", map[string]string{"lora_name": string(a.Name), "lora_path": a.Path})
	if says(err, loaded...) {
		return nil
	}
	return err
}

// unloadAdapter takes an answer with the text missing for success.
func (c *client) unloadAdapter(ctx context.Context, e api.Endpoint, name api.ModelName, missing string) error {
	_, err := c.call(ctx, http.MethodPost, e, "/v1/unload_lora_adapter", map[string]string{"lora_name": string(name)})
	if says(err, missing) {
		return nil
	}
	return err
}

// Model is a model of a server's list, or an adapter, which has a parent.
type Model struct {
	ID          api.ModelName `json:"id"`
	Root        string        `json:"root"`
	Parent      string        `json:"parent"`
	MaxModelLen int           `json:"max_model_len"`
}

type models struct {
	Data []Model `json:"data"`
}

const modelsTime = 500 * time.Millisecond

// Models returns a server's list of models, in vLLM's and SGLang's format, within half a second.
func Models(ctx context.Context, transport http.RoundTripper, e api.Endpoint) ([]Model, error) {
	ctx, cancel := context.WithTimeout(ctx, modelsTime)
	defer cancel()
	var list models
	err := (&client{http: &http.Client{Transport: transport}}).ask(ctx, http.MethodGet, e, "/v1/models", nil, &list)
	return list.Data, err
}

func (c *client) firstModel(ctx context.Context, e api.Endpoint) (string, error) {
	raw, err := c.call(ctx, http.MethodGet, e, "/v1/models", nil)
	if err != nil {
		return "", err
	}
	var list models
	if err := json.Unmarshal(raw, &list); err != nil || len(list.Data) == 0 || list.Data[0].ID == "" {
		return "", &statusError{path: "/v1/models", status: http.StatusOK, message: "lists no model"}
	}
	return string(list.Data[0].ID), nil
}
