package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// client is the one client of all measurements: keep-alive, a pool of
// connections that is never too small, whatever it talks to.
type client struct {
	http *http.Client
	base api.Endpoint
}

func newClient(base api.Endpoint) *client {
	return &client{http: &http.Client{Transport: api.NewTransport(256)}, base: base}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// post sends body and returns the answer, which is a success.
func (c *client) post(ctx context.Context, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.URL(path), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return nil, fmt.Errorf("POST %s: %s: %s", path, resp.Status, raw)
	}
	return resp, nil
}

// whole sends a request and reads the whole answer.
func (c *client) whole(ctx context.Context, path string, body []byte) error {
	resp, err := c.post(ctx, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// firstByte sends a request for a stream, reads it to its end and returns when
// its first byte was here. That must be an event's: a comment is no answer.
func (c *client) firstByte(ctx context.Context, path string, body []byte) (time.Time, error) {
	resp, err := c.post(ctx, path, body)
	if err != nil {
		return time.Time{}, err
	}
	defer resp.Body.Close()
	first := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, first[:1]); err != nil {
		return time.Time{}, fmt.Errorf("POST %s: no first byte: %w", path, err)
	}
	at := time.Now()
	if _, err := io.ReadFull(resp.Body, first[1:]); err != nil || string(first) != "data:" {
		return at, fmt.Errorf("POST %s: the stream begins with %q (%v), not with an event", path, first, err) //nolint:errorlint // it may be nil
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return at, err
}

// serial sends n requests, one after the other, and returns how long each took, in microseconds.
func (c *client) serial(ctx context.Context, n int, path string, body []byte) ([]float64, error) {
	took := make([]float64, 0, n)
	for range n {
		began := time.Now()
		if err := c.whole(ctx, path, body); err != nil {
			return nil, err
		}
		took = append(took, float64(time.Since(began))/float64(time.Microsecond))
	}
	return took, nil
}

// flood sends chat requests for a time, manyAtOnce of them at a time, and returns how many were answered per second.
func (c *client) flood(ctx context.Context, d time.Duration, body []byte) (float64, error) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards answered and failed
	answered, failed := 0, error(nil)
	began := time.Now()
	for range manyAtOnce {
		all.Go(func() {
			n := 0
			var err error
			for err == nil && time.Since(began) < d {
				if err = c.whole(ctx, pathChat, body); err == nil {
					n++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			answered += n
			if err != nil {
				failed = err
			}
		})
	}
	all.Wait()
	return float64(answered) / time.Since(began).Seconds(), failed
}

// pathChat is the path of all requests.
const pathChat = "/v1/chat/completions"

// chat is the body of a request.
func chat(model string, tokens int, stream bool) []byte {
	return fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"echo hello world"}],"max_tokens":%d,"temperature":0,"stream":%t}`, model, tokens, stream)
}
