// Package simulate computes the cost of a policy before it is deployed: it replays a trace of requests against models
// on GPUs in virtual time.
//
// The policy "rouse" calls production's decision code on the owner loop's records ([decide.Function],
// [decide.Instance]). The others are written from their documentation, each in a file that names its source.
//
// They share the world: the trace, the GPUs, how long a model takes to load, to sleep, to wake and to answer, and how
// long a request may be held. A run:
//
//  1. A request of the trace arrives and joins its function's queue (world.go).
//  2. An awake instance with room takes it: the least busy one first.
//  3. Prompts are processed one after the other; then tokens are generated together, the more requests the slower
//     (batch.go).
//  4. After each change the policy may start, wake, put to sleep or stop instances (fleet.go), which takes the model's
//     times ([Model]).
//  5. A request that has waited for [Config.Hold] is refused. Every request ends exactly once.
//  6. Nodes leave with all they have, and others come without models' files (nodes.go).
//
// GPU-hours are the time for which GPUs are held: from the order to start or wake an instance on one until the last
// instance on it is gone or asleep. The memory that sleepers keep is counted separately ([Result.SleeperGiBHours]) and
// limits what fits.
//
// It is deterministic, does no I/O and never blocks; any number of runs may be concurrent.
package simulate
