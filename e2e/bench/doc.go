// Command bench runs benchmarks, and says whether their gates hold. The first argument names one:
//
//	go run ./e2e/bench plan -o docs/bench/plan.json
//
// Each benchmark is described in the file of its name. "local" measures what Rouse adds to a model server on one machine.
//
// Each measurement has a baseline, the model server alone, taken in the same run by the same client code. The two
// alternate, round by round, so that other load on the machine affects both alike. A measurement's result is a median:
// of rounds, and of the differences of neighbouring rounds.
//
// The program under test is built from this module, and talked to as users and
// the control plane do: by its command line, its front door and its
// administrative socket. Every process that bench starts dies with it.
package main
