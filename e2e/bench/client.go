package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/e2e/bench/child"
)

// client is one of a server that is measured.
type client struct{ *child.Client }

func newClient(base api.Endpoint) client { return client{child.NewClient(base)} }

// serial sends n requests, one after the other, and returns how long each took, in microseconds.
func (c client) serial(ctx context.Context, n int, path string, body []byte) ([]float64, error) {
	took := make([]float64, 0, n)
	for range n {
		began := time.Now()
		if err := c.Post(ctx, path, body); err != nil {
			return nil, err
		}
		took = append(took, float64(time.Since(began))/float64(time.Microsecond))
	}
	return took, nil
}

// flood sends chat requests for a time, atOnce of them at a time, and returns how long each took, in microseconds, and how many were
// answered per second.
func (c client) flood(ctx context.Context, d time.Duration, atOnce int, body []byte) (took []float64, perSecond float64, err error) {
	return child.Flood(d, atOnce, func() error { return c.Post(ctx, pathChat, body) })
}

// pathChat is the path of all requests.
const pathChat = "/v1/chat/completions"

// chat is the body of a request.
func chat(model string, tokens int, stream bool) []byte {
	return fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"echo hello world"}],"max_tokens":%d,"temperature":0,"stream":%t}`, model, tokens, stream)
}
