// Package replicas carries a replica count from whoever works it out to whoever
// has the replicas. It reads a metric (Rouse's own rouse_desired_replicas, the
// Workload Variant Autoscaler's wva_desired_replicas, or any gauge) straight from
// where it is made, every second, and sets the scale of Deployments, ReplicaSets,
// StatefulSets, Knative revisions and Services. So one brain can drive what
// another runs, without Prometheus, an adapter and an HPA between them, which
// take a minute to agree.
//
// It decides nothing: no smoothing, no cool-down. That is the brain's work.
//
//  1. Every interval, give or take a tenth, each source is read, all at once. One
//     that fails is asked less and less often, up to 30 s.
//  2. Each series of the metric belongs to the first rule whose labels it has, and
//     the rule says which target it is, with the series' labels in the names. Of
//     several series for one target the highest counts.
//  3. A target is written to when its number changes; and looked at again every
//     [Config.Resync], because others may write to it too. Two relays do no harm:
//     each writes the same number.
//  4. A series that is missing, or is not a number, or whose source can't be read,
//     changes nothing: it is said once in the log, and counted.
//  5. A function of Rouse is told through the autoscaler's administrative API, which
//     forgets the number after [Config.Lifetime] unless it is renewed: a relay that
//     died leaves nothing behind. A revision of one of Knative's own classes has its
//     annotations min-scale and max-scale set, on the Revision: its PodAutoscaler's
//     are made from them at each turn of Knative's reconciler.
//
// [Relay.Run] owns all state; a write to one target never waits for another's.
package replicas
