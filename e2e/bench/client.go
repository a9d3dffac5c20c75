package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/e2e/bench/child"
	"github.com/rouse-dev/rouse/e2e/bench/report"
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

// flood sends chat requests for a time, manyAtOnce of them at a time, and returns how many were answered per second.
func (c client) flood(ctx context.Context, d time.Duration, body []byte) (float64, error) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards answered and failed
	answered, failed := 0, error(nil)
	began := time.Now()
	for range manyAtOnce {
		all.Go(func() {
			n := 0
			var err error
			for err == nil && time.Since(began) < d {
				if err = c.Post(ctx, pathChat, body); err == nil {
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

// turns measures servers in turns. Of each it returns the medians, in microseconds, of rounds of n requests one after the other, and
// the requests per second of 15 rounds of half a second with manyAtOnce of them at a time.
func (b *bench) turns(ctx context.Context, servers []client, body []byte, rounds, n int) (latency, rate [][]float64, err error) {
	for _, c := range servers { // starts what is not there, and opens connections
		if _, err := c.serial(ctx, n, pathChat, body); err != nil {
			return nil, nil, err
		}
		if _, err := c.flood(ctx, b.while(300*time.Millisecond), body); err != nil {
			return nil, nil, err
		}
	}
	latency, rate = make([][]float64, len(servers)), make([][]float64, len(servers))
	for range b.rounds(rounds) {
		for i, c := range servers {
			took, err := c.serial(ctx, n, pathChat, body)
			if err != nil {
				return nil, nil, err
			}
			latency[i] = append(latency[i], report.Quantile(took, 0.5))
		}
	}
	for range b.rounds(15) {
		for i, c := range servers {
			perSecond, err := c.flood(ctx, b.while(500*time.Millisecond), body)
			if err != nil {
				return nil, nil, err
			}
			rate[i] = append(rate[i], perSecond)
		}
	}
	return latency, rate, nil
}

// pathChat is the path of all requests.
const pathChat = "/v1/chat/completions"

// chat is the body of a request.
func chat(model string, tokens int, stream bool) []byte {
	return fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"echo hello world"}],"max_tokens":%d,"temperature":0,"stream":%t}`, model, tokens, stream)
}
