// Package simulate answers what a policy costs before anybody pays for it: it
// replays a trace of requests against models on GPUs in virtual time, once for
// each policy, and adds up the GPU-hours, the times to first token and the rest.
//
// The policy "rouse" is no model of the autoscaler: it keeps the records that the
// owner loop keeps ([decide.Function], [decide.Instance]) and asks the very
// decision code of production what to do. The others are written from their
// documentation, each in a file of its own that names its source: Knative's
// concurrency rule (knative.go), Ollama's keep-alive (keepalive.go), the random
// placement of dual pods (random.go), and of the newest, simplified, Aegaeon's turns
// between tokens (tokens.go), WarmServe's copies of weights that are foreseen to be wanted
// (prewarm.go) and a planner that reassigns memory every ten seconds, as Logos has (planner.go).
//
// What all of them share is the world, and only that: the trace, the GPUs, how
// long a model takes to load, to sleep and to wake, how fast it answers, and how
// long a request may be held. A run:
//
//  1. A request of the trace arrives and joins its function's queue (world.go).
//  2. An awake instance with room takes it: the least busy one first.
//  3. The prompt is worked through, one prompt after the other; then tokens are
//     generated together with those of the other requests, each of them more slowly
//     the more there are (batch.go).
//  4. After each change the policy may start, wake, put to sleep or stop instances
//     (fleet.go), which takes the time that the model takes ([Model]).
//  5. A request that has waited for [Config.Hold] is refused. Every request ends
//     exactly once.
//  6. Nodes leave with what they had, and others come without models' files (nodes.go).
//
// GPU-hours are the time for which GPUs are held, whatever they do: a GPU counts
// from when an instance on it is told to start or to wake until the last one on it
// is gone or asleep, drains and transitions included. A sleeper does not hold its
// GPU: others run on it. What it leaves there, and in the host's memory, is counted
// apart ([Result.SleeperGiBHours]) and bounds what fits.
//
// It is deterministic: the same [Config], trace and [Policy] give the same result.
// It does no I/O, starts no goroutine and never blocks; any number may run at once.
package simulate
