// Package knative carries out the autoscaler's decisions in a Knative cluster. A
// function is a revision of the class [api.Class], an instance is one of its pods,
// and starting or stopping one changes the scale of the revision's Deployment.
//
// It decides nothing: when an instance starts, sleeps or stops is decided by
// package autoscaler, whose [autoscaler.Effects] the [Fleet] is. It carries no
// requests and serves no HTTP: joins and reports are handed to it as calls.
//
// The life of an instance:
//
//  1. The core wants one: [Fleet.Start] raises the scale at once and takes the pod that
//     appears. Pods that appear unasked (a revision's initial scale, a pod in
//     the place of one that died) are adopted: the core is told of them.
//  2. The pod's function listens and joins ([Fleet.Join]): from then on it can be called, with
//     its own token, and its reports ([Fleet.Report]) go to the core and to all activators.
//  3. A pod that doesn't come up is diagnosed (trouble.go): its status says what to do
//     about it, the core stops it and refuses what waits for it.
//  4. It wakes and sleeps as the core says, by calls to its control paths. Asleep its pod may give up what it requests, which it
//     has again before it wakes (resize.go).
//  5. [Fleet.Stop] drains it, marks its pod as the cheapest to delete, and lowers the scale. Activators
//     forget it when its pod is being deleted; the core counts its memory until its process has ended,
//     also where the leader changes in between (expire.go).
//
// One place owns a Deployment's scale: revision.want. After a restart it is read
// from the Deployment; then only starts and stops change it, and the PodAutoscaler's
// reconciler ([NewController]) brings the Deployment back to it.
//
// State stands under one mutex that is never held over a call. Informers, the
// reconciler's workers, joins and the core's calls come from goroutines of their own.
package knative
