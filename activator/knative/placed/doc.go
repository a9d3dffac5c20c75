// Package placed creates the functions of remote front doors in a Kubernetes cluster, as Knative Services of one
// namespace.
//
// It refuses whatever a cluster's operator would not run for others: a runtime without an image named by the
// operator, a command, a handler, an environment, a sidecar, or another namespace than the operator's. It also
// refuses to change a Service that it has not made.
//
// The life of one Service:
//
//  1. A front door's manifest arrives ([Applier.Apply]). The Service gets its annotations, resources and runtime
//     arguments, and nothing else: the image and the container's security settings are the cluster's own.
//  2. The Service is marked with [LabelPlaced], its owners ([AnnotationFronts]), and its manifest's hash. The
//     cluster's watch reports it ([Applier.See]), so that every agent of the cluster knows its owners, also one that
//     started later.
//  3. Another front door with the same manifest is added to its owners.
//  4. A front door that no longer needs it is removed from its owners ([Applier.Remove]); without owners the Service
//     is deleted. Each write requires the state that was read. If the object has changed meanwhile, it is read
//     again.
package placed
