// Package replicas sets the number of replicas that an autoscaler publishes as a metric, without Prometheus, an adapter
// and an HPA between them. It does no smoothing and no cool-down.
//
//  1. Every interval, give or take a tenth, all sources are read; a failing one less and less often.
//  2. Each series belongs to the first rule whose labels it has. Of several series for one target the highest counts.
//  3. A target is written when its number changes, and checked every [Config.Resync]. Two relays do no harm.
//  4. A series that is missing, is not a number, or whose source can't be read changes nothing.
//  5. Rouse's autoscaler forgets a number after [Config.Lifetime]. For a revision of Knative's own classes min-scale and
//     max-scale are set on the Revision, because Knative's reconciler copies them to its PodAutoscaler.
//
// [Relay.Run] owns all state; a write to one target never waits for another's.
package replicas
