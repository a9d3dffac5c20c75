// The benchmark route measures how instances are chosen:
//
//	go run ./e2e/bench route -rouse bin/rouse -o docs/bench/route.json
//
// It measures:
//
//  1. How long it takes to look a prompt up in an index of 1,000 instances, and to pick one by it.
//  2. How many tokens of the prompts of conversations are found in caches: with one engine, then four, behind one
//     activator, or two without and with sessions; last, each request goes to the least busy engine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

const (
	routeEngines = 4
	clients      = 8
	turns        = 6
	slots        = 8 // requests that an engine takes at once
	modelName    = "m"
)

func runRoute() {
	program := flag.String("rouse", "bin/rouse", "the `program` whose engine serves")
	report.Main(func(ctx context.Context, r *report.Run) error {
		if err := goReport(chooseBenchmarks...)(ctx, r); err != nil {
			return err
		}
		return traces(ctx, r, *program)
	})
}

// Each play has words of its own, so that none finds what another has left in caches.
func traces(ctx context.Context, r *report.Run, program string) error {
	conversations := report.Sized(r.Small, 48, clients)
	dir, err := os.MkdirTemp("", "route")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var all []*Client
	for n := range routeEngines {
		e, err := StartEngine(ctx, program, api.Endpoint("unix:"+filepath.Join(dir, fmt.Sprint(n))), "--model", "pico", "--name", modelName, "--max-num-seqs", "128", "--threads", "1")
		if err != nil {
			return err
		}
		defer e.Stop()
		all = append(all, e.Client)
	}
	what := fmt.Sprintf("share of prompt tokens found in caches: %d conversations of %d turns with one system prompt, %d at once, over %d engines", conversations, turns, clients, routeEngines)
	ways := []struct {
		name, how  string
		activators int
		engines    []*Client
		sessions   bool
		shares     []float64
	}{
		{activators: 1, engines: all[:1]},
		{name: "cached, one activator", activators: 1, engines: all},
		{name: "cached, two activators", how: ", behind two activators that take the requests at random", activators: 2, engines: all},
		{name: "cached, two and sessions", how: ", behind two such activators, with a prompt_cache_key for each conversation", activators: 2, engines: all, sessions: true},
		{name: "cached, by load alone", how: ", each at the least busy one", engines: all},
	}
	for round := range report.Sized(r.Small, 3, 1) {
		for k := range ways {
			w := &ways[k]
			ask, end, err := front(w.activators, w.engines)
			if err != nil {
				return err
			}
			share, err := play(ctx, 10*round+k, conversations, w.sessions, ask)
			end()
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			w.shares = append(w.shares, share)
		}
	}
	for k, w := range ways[1:] {
		m := report.Compare(report.Measurement{Name: w.name, What: what + w.how, Unit: "share", Against: "one engine alone"}, w.shares, ways[0].shares)
		if k == 0 {
			m = m.Gated(m.Ratio >= 0.9, "at least 0.9 of one engine alone")
		}
		r.Add(m)
	}
	return nil
}

type ask func(ctx context.Context, body, answer any) error

// front sends to any of some activators that know the engines; without one, to the least busy engine.
func front(activators int, engines []*Client) (do ask, end func(), err error) {
	transport := api.NewTransport(64)
	ends := []func(){transport.CloseIdleConnections}
	end = func() {
		for _, e := range ends {
			e()
		}
	}
	var doors []*Client
	name := api.NewFunctionName("", modelName)
	for n := range activators {
		a, err := activator.New(activator.Config{Name: fmt.Sprint("a", n)}, activator.Deps{
			Emitter: api.EmitterFunc(func(api.Event) {}), Waker: control.New(transport, nil), Transport: transport,
		})
		if err != nil {
			end()
			return nil, nil, err
		}
		a.PutFunction(api.Function{Name: name, Concurrency: slots})
		for k, e := range engines {
			a.ObserveInstance(api.InstanceStatus{Instance: api.InstanceID(fmt.Sprintf("m-%04d", k)), Function: name, State: api.Awake, Seq: 1, Endpoint: e.Base, Concurrency: slots})
		}
		server := httptest.NewServer(a.Handler())
		ends = append(ends, server.Close)
		doors = append(doors, NewClient(api.Endpoint(server.URL)))
	}
	var mu sync.Mutex // guards running
	running := make([]int, len(engines))
	return func(ctx context.Context, body, answer any) error {
		if len(doors) > 0 {
			return doors[rand.IntN(len(doors))].Call(ctx, http.MethodPost, pathChat, body, answer)
		}
		mu.Lock()
		best := -1
		for _, k := range rand.Perm(len(engines)) {
			if best < 0 || running[k] < running[best] {
				best = k
			}
		}
		running[best]++
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			running[best]--
		}()
		return engines[best].Call(ctx, http.MethodPost, pathChat, body, answer)
	}, end, nil
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// play returns the share of prompt tokens that were in caches. The conversations come in another order in each turn, so
// that the next request does not depend on which engine became free.
func play(ctx context.Context, seed, conversations int, sessions bool, do ask) (float64, error) {
	var mu sync.Mutex // guards both
	prompts, cached := 0, 0
	all := make([][]message, conversations)
	for turn := range turns {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(clients)
		for _, k := range rand.Perm(conversations) {
			group.Go(func() error {
				if turn == 0 {
					all[k] = []message{{"system", randomWords(seed, -1, 24)}}
				}
				all[k] = append(all[k], message{"user", randomWords(seed, turns*k+turn, 12)})
				chat := map[string]any{"model": modelName, "messages": all[k], "max_tokens": 8, "temperature": 0}
				if sessions {
					chat["prompt_cache_key"] = fmt.Sprint(seed, " ", k)
				}
				var answer struct {
					Choices []struct{ Message message }
					Usage   struct {
						Prompt  int `json:"prompt_tokens"`
						Details struct {
							Cached int `json:"cached_tokens"`
						} `json:"prompt_tokens_details"`
					}
				}
				if err := do(ctx, chat, &answer); err != nil {
					return err
				}
				if len(answer.Choices) == 0 {
					return errors.New("an answer has no choice")
				}
				all[k] = append(all[k], answer.Choices[0].Message)
				mu.Lock()
				defer mu.Unlock()
				prompts, cached = prompts+answer.Usage.Prompt, cached+answer.Usage.Details.Cached
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return 0, err
		}
	}
	return float64(cached) / float64(prompts), nil
}

// randomWords are n words in an order of their own. The model has a token for each.
func randomWords(seed, of, n int) string {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(of)))
	list := strings.Fields("apple pear plum lemon grape melon cherry mango")
	out := []string{"echo"}
	for range n {
		out = append(out, list[r.IntN(len(list))])
	}
	return strings.Join(out, " ")
}
