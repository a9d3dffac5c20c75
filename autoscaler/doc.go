// Package autoscaler decides which instances exist and which of them are awake.
// It is the one writer: nothing else starts, sleeps or stops an instance, and
// activators wake one only under its grants.
//
// It refuses to carry requests, to talk to Kubernetes, and to know how an
// instance is started or reached: that is behind [Effects].
//
// The life of a decision:
//
//  1. Activators report demand, instances report their state; both are levels
//     and come as events ([Autoscaler.Receive]) or calls ([Autoscaler.ObserveDemand],
//     [Autoscaler.ObserveInstance]). None of these block.
//  2. The owner loop ([Autoscaler.Run]) takes in everything that has come. Each message marks the function that it
//     is about as dirty; the [decide.World] is told of these, and plans.
//  3. Each action becomes one call of [Effects], in a goroutine of its own. What it
//     came to returns to the loop as a message.
//  4. The decision and its reason are kept ([Autoscaler.Why]), logged, counted, and
//     emitted as an [api.EventDecision].
//  5. Where it has acted the loop plans once more. Then it sleeps until a message comes or
//     the next deadline. There is no tick.
//
// A round of the loop is at one time ([clock]). Whatever its state or its decisions depend on comes in as an [input], and what calls of
// Effects came to is one too: these, the times and the decisions are recorded ([Config].Record), and a [Replay] gives the decisions again.
//
// Every method may be called from any goroutine. State belongs to the loop;
// methods that ask for it send the loop a message, so they wait until Run runs.
//
// Restarts: functions are put again and instances report again. An instance
// that was not started here is adopted; a grant from before may be out for it, so
// once it sleeps its awake memory stays reserved until it has seen an epoch of this autoscaler.
package autoscaler
