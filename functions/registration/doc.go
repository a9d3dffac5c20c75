// Package registration registers an instance at a cluster's control plane, learns the
// function from it, and keeps the instance registered.
//
// The life of an agent:
//
//  1. [Agent.Run] posts a [control.RegisterRequest], with the instance's own token,
//     until it is answered. It retries after a pause that grows from 50 ms to 2 s, and
//     logs what stands in the way and what to do about it.
//  2. The first answer closes [Agent.Joined]. The instance assembles itself from
//     [Agent.Answer] and posts its events through [Agent.Transport], which adds
//     the token.
//  3. If an event is answered "unknown" (401, 403, 404 or 410), the control plane has
//     forgotten the instance, perhaps after a restart. The agent joins again, and makes
//     the instance report.
//  4. [Agent.Ask] makes it report too, a few times a second at most, because anybody who
//     reaches the instance may ask. It also reports when the control plane is reachable
//     again after an event was lost.
//
// If another autoscaler manages the revision, the control plane says so (404 with the
// code unsupported), and the agent is [Agent.Alone] for good.
//
// [Pod] has what a pod knows without asking: its namespace and the cluster's domain.
//
// Run is called once; all other methods are safe for many goroutines and don't block.
package registration
