// Package placed creates the functions of front doors elsewhere in a Kubernetes cluster, as Knative Services of one namespace.
//
// It refuses what is not an operator's to have run by somebody else: a runtime for which the operator names no image, a command, a handler, an
// environment, a sidecar, a namespace other than the operator's, and a Service that it has not made.
//
// The life of one Service:
//
//  1. A front door's manifest comes ([Applier.Apply]). Of it the Service gets the annotations, the resources and the runtime's arguments,
//     and nothing else: the image and how the container is confined are the cluster's own.
//  2. The Service is marked: [LabelPlaced], whose it is ([AnnotationFronts]), and what it was made from. The cluster's watch
//     tells of it ([Applier.See]), so that every agent of the cluster knows whose it is, also one that started later.
//  3. Another front door with the same manifest is added to its owners.
//  4. A front door wants it no more ([Applier.Remove]): it is one owner less, and the last one's removal deletes it. Each
//     write holds for the state that was read: what somebody else has changed meanwhile is read again.
package placed
