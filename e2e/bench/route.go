// The benchmark route measures how instances are chosen, and says whether the gates hold:
//
//	go run ./e2e/bench route -rouse bin/rouse -o docs/bench/route.json
//
// It measures:
//
//  1. How long it takes to look a prompt up in an index of 1,000 instances, hashing included.
//  2. How long it takes to pick one of 1,000 instances by it.
//  3. How many tokens of the prompts of a trace of conversations are found in caches. The engines are processes (rouse
//     engine serve with the model that ships with Rouse), and report these tokens in
//     usage.prompt_tokens_details.cached_tokens. The activator, in this process, has one engine, then four. Then two
//     activators that take the requests at random have four, without and with sessions. Last, four engines run without
//     an activator, and each request goes to the least busy one.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/activator/route/prefix"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/e2e/bench/report"
)

func runRoute() {
	program := flag.String("rouse", "bin/rouse", "the `program` whose engine serves")
	report.Main(func(ctx context.Context, r *report.Run) error { return measureRoute(ctx, r, *program) })
}

func measureRoute(ctx context.Context, r *report.Run, program string) error {
	n, conversations, blocks, rounds := 20_000, 48, 200_000, 3
	if r.Small {
		n, conversations, blocks, rounds = 100, clients, 2000, 1
	}
	r.Add(lookup(4_000, n, blocks, 0.005), lookup(100_000, n/10, blocks, 1))
	r.Add(pick(4_000, n), pick(100_000, n))
	ms, err := traces(ctx, program, conversations, rounds)
	if err != nil {
		return err
	}
	r.Add(ms...)
	return ctx.Err()
}

// instances is how many there are to choose from.
const routeInstances = 1000

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// prompt returns a text of the given number of tokens, of four bytes each.
func prompt(name string, tokens int) []byte {
	var b strings.Builder
	for n := 0; b.Len() < 4*tokens; n++ {
		fmt.Fprintf(&b, "%s %d ", name, n)
	}
	return []byte(b.String()[:4*tokens])
}

// lookup looks n prompts up whose first half was seen, in an index of so many blocks.
func lookup(tokens, n, blocks int, most float64) report.Measurement {
	var x prefix.Index
	var among prefix.Places
	for range routeInstances {
		among.Add(x.Place())
	}
	r := rand.New(rand.NewPCG(1, 1))
	salt := prefix.SaltOf("tenant")
	var prompts [][]byte
	for k := range 40 {
		prompts = append(prompts, prompt(fmt.Sprint("p", k), tokens))
	}
	for _, p := range prompts {
		x.Learn(prefix.Of(salt, p[:len(p)/2]), r.IntN(routeInstances), epoch)
	}
	for k := 0; x.Len() < blocks; k++ {
		x.Learn(prefix.Of(salt, prompt(fmt.Sprint("other", k), 20_000)), r.IntN(routeInstances), epoch)
	}
	var took []float64
	var seen prefix.Places
	for k := range n {
		p := prompts[k%len(prompts)]
		began := time.Now()
		_, seen = x.Find(prefix.Of(salt, p), among, seen)
		took = append(took, report.Millis(time.Since(began)))
	}
	m := report.Measurement{Name: fmt.Sprintf("lookup of %d tokens", tokens), Unit: "ms", N: n, Rouse: report.Summarise(took),
		What: fmt.Sprintf("hash a prompt of %d bytes and find which of %d instances have seen most of it, in an index of %d blocks", 4*tokens, routeInstances, blocks)}
	return m.Gated(m.Rouse.P50 <= most, "p50 is at most %g ms", most)
}

// pick picks one of the instances, which are half busy, for conversations that they know.
func pick(tokens, n int) report.Measurement {
	var s route.Set
	for k := range routeInstances {
		s.Observe(api.InstanceStatus{Instance: api.InstanceID(fmt.Sprint("i", k)), State: api.Awake, Seq: 1, Concurrency: 64, Endpoint: "unix:/s"}, epoch)
	}
	salt := prefix.SaltOf("tenant")
	var wants []route.Want
	for k := range 64 {
		wants = append(wants, route.Want{Prefix: prefix.Of(salt, prompt(fmt.Sprint("p", k), tokens))})
	}
	r := rand.New(rand.NewPCG(1, 1))
	var running []*route.Instance
	for k := range routeInstances * 64 / 2 {
		i, _ := s.PickFor(epoch, wants[k%len(wants)], nil)
		running = append(running, i)
	}
	var took []float64
	for range n {
		at := r.IntN(len(running))
		s.Release(running[at], "")
		w := wants[r.IntN(len(wants))]
		began := time.Now()
		running[at], _ = s.PickFor(epoch, w, nil)
		took = append(took, report.Millis(time.Since(began)))
	}
	m := report.Measurement{Name: fmt.Sprintf("pick, %d tokens", tokens), Unit: "ms", N: n, Rouse: report.Summarise(took),
		What: fmt.Sprintf("pick one of %d instances, half of whose slots are in use, by a hashed prompt of %d tokens, and note it in the index", routeInstances, tokens)}
	return m.Gated(m.Rouse.P99 <= 0.05, "p99 is at most 0.05 ms")
}
