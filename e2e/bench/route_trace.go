package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

const (
	routeEngines = 4
	// clients ask at once.
	clients = 8
	turns   = 6
	// slots is how many requests an engine takes at once.
	slots     = 8
	modelName = "m"
)

// traces plays the trace at one engine and at four, routed in four ways. Each play has words of its own, so that none
// finds in caches what another has left there.
func traces(ctx context.Context, program string, conversations, rounds int) ([]report.Measurement, error) {
	dir, err := os.MkdirTemp("", "route")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var all []api.Endpoint
	for n := range routeEngines {
		e, err := StartEngine(ctx, program, api.Endpoint("unix:"+filepath.Join(dir, fmt.Sprint(n))), "--model", "pico", "--name", modelName, "--max-num-seqs", "128", "--threads", "1")
		if err != nil {
			return nil, err
		}
		defer e.Stop()
		all = append(all, e.Base)
	}
	transport := api.NewTransport(64)
	defer transport.CloseIdleConnections()
	behind := func(activators int, at []api.Endpoint, sessions bool) func(int) (share float64, err error) {
		return func(seed int) (float64, error) {
			sends, end, err := front(activators, at, transport)
			if err != nil {
				return 0, err
			}
			defer end()
			return play(ctx, seed, conversations, sessions, sends)
		}
	}
	shares := map[string][]float64{}
	for round := range rounds {
		for k, way := range []struct {
			name string
			play func(int) (float64, error)
		}{
			{"alone", behind(1, all[:1], false)},
			{"four", behind(1, all, false)},
			{"two activators", behind(2, all, false)},
			{"sessions", behind(2, all, true)},
			{"by load", func(seed int) (float64, error) {
				return play(ctx, seed, conversations, false, byLoad(all))
			}},
		} {
			share, err := way.play(10*round + k)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
			shares[way.name] = append(shares[way.name], share)
		}
	}
	return cached(conversations, shares), nil
}

// cached compares the shares of each way with the share of one engine alone.
func cached(conversations int, shares map[string][]float64) []report.Measurement {
	what := fmt.Sprintf("share of prompt tokens found in caches: %d conversations of %d turns with one system prompt, %d at once, over %d engines", conversations, turns, clients, routeEngines)
	var ms []report.Measurement
	for _, w := range []struct{ name, key, how string }{
		{"cached, one activator", "four", ""},
		{"cached, two activators", "two activators", ", behind two activators that take the requests at random"},
		{"cached, two and sessions", "sessions", ", behind two such activators, with a prompt_cache_key for each conversation"},
		{"cached, by load alone", "by load", ", each at the least busy one"},
	} {
		m := report.Measurement{Name: w.name, What: what + w.how, Unit: "share", Against: "one engine alone"}
		m = report.Compare(m, shares[w.key], shares["alone"])
		if w.key == "four" {
			m = m.Gated(m.Ratio >= 0.9, "at least 0.9 of one engine alone")
		}
		ms = append(ms, m)
	}
	return ms
}

// send sends a chat request, and reads the answer.
type send func(ctx context.Context, body, answer any) error

// to sends to a server.
func to(at api.Endpoint) send {
	c := NewClient(at)
	return func(ctx context.Context, body, answer any) error {
		return c.Call(ctx, http.MethodPost, "/v1/chat/completions", body, answer)
	}
}

// front is some activators that know the engines, and nothing of each other.
func front(activators int, at []api.Endpoint, transport http.RoundTripper) (sends []send, end func(), err error) {
	var ends []func()
	end = func() {
		for _, e := range ends {
			e()
		}
	}
	for n := range activators {
		a, err := activator.New(activator.Config{Name: fmt.Sprint("a", n)}, activator.Deps{
			Emitter: api.EmitterFunc(func(api.Event) {}), Waker: control.New(transport, nil), Transport: transport,
		})
		if err != nil {
			return nil, end, err
		}
		name := api.NewFunctionName("", modelName)
		a.PutFunction(api.Function{Name: name, Concurrency: slots})
		for k, e := range at {
			a.ObserveInstance(api.InstanceStatus{Instance: api.InstanceID(fmt.Sprintf("m-%04d", k)), Function: name, State: api.Awake, Seq: 1, Endpoint: e, Concurrency: slots})
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, end, err
		}
		server := &http.Server{Handler: a.Handler(), ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(listener) }() // ends with Close
		ends = append(ends, func() { _ = server.Close() })
		sends = append(sends, to(api.Endpoint("http://"+listener.Addr().String())))
	}
	return sends, end, nil
}

// byLoad sends each request to the engine that has the fewest of them, and of several any.
func byLoad(at []api.Endpoint) []send {
	var mu sync.Mutex // guards running
	running := make([]int, len(at))
	sends := make([]send, len(at))
	for k, e := range at {
		sends[k] = to(e)
	}
	return []send{func(ctx context.Context, body, answer any) error {
		mu.Lock()
		best := -1
		for _, k := range rand.Perm(len(at)) {
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
		return sends[best](ctx, body, answer)
	}}
}

// message is one of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// used is the part of an answer that counts its tokens.
type used struct {
	Prompt  int `json:"prompt_tokens"`
	Details struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// play plays the trace, and returns the share of the tokens of prompts that were in caches. In each turn the
// conversations come in another order, so that the next request does not depend on which engine has just become free.
func play(ctx context.Context, seed, conversations int, sessions bool, sends []send) (float64, error) {
	var mu sync.Mutex // guards both
	prompts, cached := 0, 0
	all := make([][]message, conversations)
	system := message{"system", randomWords(seed, -1, 24)}
	for turn := range turns {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(clients)
		for _, k := range rand.Perm(conversations) {
			group.Go(func() error {
				if turn == 0 {
					all[k] = []message{system}
				}
				all[k] = append(all[k], message{"user", randomWords(seed, turns*k+turn, 12)})
				session := ""
				if sessions {
					session = fmt.Sprint(seed, " ", k)
				}
				answer, u, err := ask(ctx, sends[rand.IntN(len(sends))], session, all[k])
				if err != nil {
					return err
				}
				all[k] = append(all[k], answer)
				mu.Lock()
				prompts, cached = prompts+u.Prompt, cached+u.Details.Cached
				mu.Unlock()
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return 0, err
		}
	}
	return float64(cached) / float64(prompts), nil
}

// ask sends a conversation, and returns its next message.
func ask(ctx context.Context, s send, session string, messages []message) (message, used, error) {
	chat := map[string]any{"model": modelName, "messages": messages, "max_tokens": 8, "temperature": 0}
	if session != "" {
		chat["prompt_cache_key"] = session
	}
	var answer struct {
		Choices []struct{ Message message }
		Usage   used
	}
	if err := s(ctx, chat, &answer); err != nil {
		return message{}, used{}, err
	}
	if len(answer.Choices) == 0 {
		return message{}, used{}, errors.New("an answer has no choice")
	}
	return answer.Choices[0].Message, answer.Usage, nil
}

// words are some that the model has a token for each of, in an order of their own.
func randomWords(seed, of, n int) string {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(of)))
	list := strings.Fields("apple pear plum lemon grape melon cherry mango")
	out := []string{"echo"}
	for range n {
		out = append(out, list[r.IntN(len(list))])
	}
	return strings.Join(out, " ")
}
