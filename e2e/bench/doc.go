// Command bench runs benchmarks, and says whether their gates hold. The first argument names one:
//
//	go run ./e2e/bench plan -o docs/bench/plan.json
//
// Each benchmark is described in the file of its name. "local" measures what Rouse adds to a model server on one machine:
//
//  1. asleep: from the request to the first byte of a stream, by an instance that
//     sleeps and has a standing grant. Baseline: POST /wake_up, then the same
//     request, to an engine alone.
//  2. gone: the same where no process exists. Baseline: from the exec of an engine
//     to its line "listening on", then the request.
//  3. warm: requests of one token and streams, one at a time and many at a time. They go to a model server that does
//     nothing, through Rouse, Go's ReverseProxy and, if it is in the PATH, llama-swap; and to the engine.
//  4. wake: functions that sleep and whose model server, a simulated vLLM, wakes in no
//     time: one, and a hundred in the same moment. Baseline: the same requests while
//     they are awake.
//  5. up: from the exec of "rouse up" to its first answer; its memory and its
//     processor time while nothing happens.
//
// Each measurement has a baseline, the model server alone, taken in the same run by the same client code. The two
// alternate, round by round, so that other load on the machine affects both alike. A measurement's result is a median:
// of rounds, and of the differences of neighbouring rounds.
//
// The program under test is built from this module, and talked to as users and
// the control plane do: by its command line, its front door and its
// administrative socket. Every process that bench starts dies with it.
package main
