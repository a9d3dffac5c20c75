// Command bench runs benchmarks, and says whether their gates hold. The first argument names one:
//
//	go run ./e2e/bench plan -o docs/bench/plan.json
//
// "local" measures what Rouse adds to a model server on one machine, with what a runtime alone takes as the baseline:
//
//  1. asleep: from the request to the first byte, by an instance that sleeps under a grant.
//  2. gone: the same without a process.
//  3. warm: requests and streams, one and many at a time, to a model server that does nothing, through Rouse, Go's
//     ReverseProxy and llama-swap; and to the engine.
//  4. wake: functions whose model server wakes in no time: one, and a hundred at once.
//  5. up: from the exec of "rouse up" to its first answer, and what it takes while idle.
//
// Baselines are taken in the same run, in turns, so that other load affects both alike. A result is a median: of
// rounds, and of differences of neighbouring rounds.
//
// Every process dies with bench.
package main
