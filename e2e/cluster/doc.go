// Package cluster runs a real Kubernetes with Knative Serving on one machine, for
// tests: every program of it is built from pinned Go modules, and nothing is
// pulled from a registry. It needs Linux, root, Go and a few Debian packages.
//
// How it comes up, which takes a quarter of a minute once the programs are built:
//
//  1. The programs. The folders in build/ are modules of their own that pin
//     Kubernetes, etcd, containerd, runc, CNI plugins, CoreDNS, Knative and kn, so
//     that the product's go.mod knows none of them. What "go build" makes of one lies
//     in the cache under a hash of its inputs ([Places]); what is there is not built
//     again (program.go).
//  2. The images of Knative's parts, and Knative's manifests out of its modules
//     (image.go, manifest.go).
//  3. Certificates and configuration (certs.go, config.go).
//  4. The node: this program starts itself again as the first process of new
//     namespaces, and joins them to the host by one pair of links ([Init]). The
//     host routes pods and services there, so that a test reaches each of them.
//  5. The services, from etcd to the kubelet, started over the first process's
//     socket, in the order in which they need one another (services.go, up.go).
//  6. Knative, applied by kubectl, with an ingress and a device plugin that are
//     written here: build/knative/cmd (knative.go).
//
// How it goes down: the first process is killed, and with it the kernel ends every process in its namespaces, their
// mounts and their network. The host's end of the link, control groups, some of the kernel's settings and empty folders
// remain. They are recorded on the host before they are made, so that [Down] undoes them, even if [Up] was killed
// halfway.
//
// One host runs one cluster, for its addresses are fixed. It belongs to a checkout: in another checkout, an error names
// the owner and the way out. Calls of [Up] and [Down] from many processes wait for one another.
//
// Limits: it has one node, no registry, no storage, no network policies and no TLS at the ingress, and its etcd does
// not write to the disk in time. Its administrator's key lies readable for root in the cache.
//
// Tests call [Get]. By hand: `make cluster`, `make cluster-down`, and the command
// in cmd/cluster.
package cluster
