// Package knative carries out the autoscaler's decisions in a Knative cluster. A function is a revision of the class
// [config.Class], an instance is one of its pods, and starting or stopping one changes the scale of the revision's Deployment.
//
// It makes no decisions: package autoscaler does, and the [Fleet] is its [autoscaler.Effects]. It carries no requests and serves
// no HTTP: joins and reports reach it as method calls.
//
// The life of an instance:
//
//  1. The core starts one: [Fleet.Start] raises the scale at once and takes the pod that appears. Other new pods (a revision's
//     initial scale, a replacement for one that died) are adopted: the core is told of them.
//  2. The pod's function listens and joins ([Fleet.Join]). From then on it can be called, with its own token, and its reports
//     ([Fleet.Report]) go to the core and to all activators.
//  3. A pod that doesn't come up is diagnosed (trouble.go): its status says what to do, the core stops it and refuses the
//     requests that wait for it.
//  4. It wakes and sleeps as the core orders, by calls to its control paths. Asleep, its pod may give up some of its requests,
//     which it gets back before it wakes (resize.go).
//  5. [Fleet.Stop] drains it, marks its pod as the cheapest to delete, and lowers the scale. Activators forget it when its pod
//     is being deleted; the core counts its memory until its process has ended, even if the leader changes in between
//     (leaving.go).
//
// A Deployment's scale has one owner: revision.want. After a restart it is read from the Deployment; then only starts and stops
// change it, and the PodAutoscaler's reconciler ([NewController]) sets the Deployment back to it.
//
// The fleet's parts share one mutex that is never held over a call (state.go). Each may call those above it:
//
//   - nodes: the cluster's GPUs and memory, which the core is given as devices
//   - rooms: what is left of nodes on which pods wait for room
//   - resizer: requests of sleepers' pods
//   - scaler: scales of Deployments, deletion costs, and waiting until Kubernetes has acted on them
//   - functions: declarations of revisions
//   - tracker: pods from their creation to their end, and what their functions report
//   - orders: calls to the control paths of instances
//   - pairs: dual pods
//   - modelNames: names that services have lost
//
// [Fleet] composes them: starts, stops, wakes and joins. The reconciler writes the result into Knative's objects. Informers, the
// reconciler's workers, joins and the core's calls have goroutines of their own.
package knative
