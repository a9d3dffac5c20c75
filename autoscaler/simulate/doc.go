// Package simulate computes the cost of a policy before it is deployed. It replays a trace of requests against models
// on GPUs in virtual time, once for each policy, and adds up GPU-hours, times to first token and more.
//
// The policy "rouse" is no model of the autoscaler: it keeps the owner loop's records ([decide.Function],
// [decide.Instance]) and calls production's decision code. The others are written from their documentation, each in a
// file that names its source: Knative's concurrency rule (knative.go), Ollama's keep-alive (keepalive.go) and the
// random placement of dual pods (random.go). Three newer ones are simplified: Aegaeon's turns between tokens
// (tokens.go), WarmServe's copies of weights for predicted demand (prewarm.go), and a planner that reassigns memory
// every ten seconds, like Logos (planner.go).
//
// They share only the world: the trace, the GPUs, how long a model takes to load, to sleep and to wake, how fast it
// answers, and how long a request may be held. A run:
//
//  1. A request of the trace arrives and joins its function's queue (world.go).
//  2. An awake instance with room takes it: the least busy one first.
//  3. The prompt is processed, one after the other; then tokens are generated together with those of the other
//     requests, the more of them the slower (batch.go).
//  4. After each change the policy may start, wake, put to sleep or stop instances (fleet.go), which takes the model's
//     times ([Model]).
//  5. A request that has waited for [Config.Hold] is refused. Every request ends exactly once.
//  6. Nodes leave with all they have, and others come without models' files (nodes.go).
//
// GPU-hours are the time for which GPUs are held. A GPU counts from the order to start or wake an instance on it until
// the last instance on it is gone or asleep, including drains and transitions. A sleeper does not hold its GPU: others
// run on it. The memory it keeps there, and on the host, is counted separately ([Result.SleeperGiBHours]) and limits
// what fits.
//
// It is deterministic: the same [Config], trace and [Policy] give the same result. It does no I/O, starts no goroutine
// and never blocks; any number of runs may be concurrent.
package simulate
