// Package replicas sets the number of replicas that an autoscaler publishes as a metric. It reads the metric (Rouse's
// own rouse_desired_replicas, the Workload Variant Autoscaler's wva_desired_replicas, or any gauge) directly from its
// sources, every second, and sets the scale of Deployments, ReplicaSets, StatefulSets, Knative revisions and Services.
// So one autoscaler can scale another's replicas without Prometheus, an adapter and an HPA between them, which take a
// minute to agree.
//
// It decides nothing and does no smoothing and no cool-down: that is the autoscaler's work.
//
//  1. Every interval, give or take a tenth, all sources are read concurrently. A failing one is read less and less
//     often, down to every 30 s.
//  2. Each series of the metric belongs to the first rule whose labels it has. The rule says which target it is for,
//     with the series' labels in the names. Of several series for one target the highest counts.
//  3. A target is written when its number changes, and checked every [Config.Resync], because others may write to it
//     too. Two relays do no harm: each writes the same number.
//  4. A series that is missing, is not a number, or whose source can't be read changes nothing: it is logged once, and
//     counted.
//  5. A function of Rouse is scaled through the autoscaler's administrative API, which forgets the number after
//     [Config.Lifetime] unless it is renewed: a dead relay leaves nothing behind. For a revision of Knative's own
//     classes the annotations min-scale and max-scale are set on the Revision, because Knative's reconciler copies them
//     to its PodAutoscaler.
//
// [Relay.Run] owns all state; a write to one target never waits for another's.
package replicas
