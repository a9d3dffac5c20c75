// Package cluster runs a real Kubernetes with Knative Serving on one machine, for tests. It needs Linux, root, Go and a
// few Debian packages.
//
// How it comes up:
//
//  1. The programs: the folders in build/ are modules that pin Kubernetes, etcd, containerd, runc, CNI plugins,
//     CoreDNS, Knative and kn. Each lies in the cache under a hash of its inputs ([Places], program.go).
//  2. The images of Knative's parts, and Knative's manifests (image.go, manifest.go).
//  3. Certificates and configuration (certs.go, config.go).
//  4. The node: this program starts itself again as the first process of new namespaces, joined to the host by one pair
//     of links ([Init]), through which the host routes pods and services.
//  5. The services, from etcd to the kubelet (services.go, up.go).
//  6. Knative, with an ingress and a device plugin written here: build/knative/cmd (knative.go).
//
// How it goes down: the kernel ends every process in the namespaces with the first one. What the host keeps is recorded
// before it is made, so that [Down] undoes it, even if [Up] was killed halfway.
//
// One host runs one cluster, for its addresses are fixed. It belongs to a checkout. Calls of [Up] and [Down] from many
// processes wait for one another.
//
// It has one node, no registry, storage, network policies or TLS at the ingress. Its administrator's key lies readable
// for root in the cache.
//
// Tests call [Get]. By hand: `make cluster`, and the command in cmd/cluster.
package cluster
