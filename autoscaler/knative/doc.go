// Package knative carries out the autoscaler's decisions in a Knative cluster. A function is a revision of the class
// [config.Class], an instance is one of its pods, and starting or stopping one changes the scale of the revision's
// Deployment. The [Fleet] is the autoscaler's [autoscaler.Effects]; it decides nothing and serves no HTTP.
//
// The life of an instance:
//
//  1. [Fleet.Start] raises the scale and takes the pod that appears. Other new pods are adopted.
//  2. The pod's function joins ([Fleet.Join]); its reports ([Fleet.Report]) go to the core and to all activators.
//  3. A pod that doesn't come up is diagnosed (trouble.go).
//  4. It wakes and sleeps by calls to its control paths. Asleep, its pod may give up some of its requests (resize.go).
//  5. [Fleet.Stop] drains it and lowers the scale. The core counts its memory until its process has ended (leaving.go).
//
// revision.want alone says a Deployment's scale; the reconciler ([NewController]) sets the Deployment back to it.
//
// The fleet's parts share one mutex that is never held over a call (state.go). Each may call those above it:
//
//   - nodes: GPUs and memory, which the core is given as devices
//   - rooms: what is left of nodes on which pods wait for room
//   - resizer: requests of sleepers' pods
//   - scaler: scales of Deployments, deletion costs, and waiting until Kubernetes has acted on them
//   - functions: declarations of revisions
//   - tracker: pods from their creation to their end, and what their functions report
//   - orders: calls to the control paths of instances
//   - pairs: dual pods
//   - modelNames: names that services have lost
package knative
