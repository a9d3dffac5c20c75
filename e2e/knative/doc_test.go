// Package knative tests Rouse as its users have it: in a real cluster with a
// real Knative Serving, through kn, kubectl and HTTP at the ingress.
//
// The life of a run:
//
//  1. The cluster is brought up, or the one that runs is used (package
//     e2e/cluster). Where neither can be had the tests are skipped, with the reason.
//  2. The images are built from this checkout and loaded into the node.
//  3. Rouse is installed as the README says: kubectl apply -k manifests/overlays/default.
//  4. Each test makes functions of its own with kn and removes them. Tests that stop or replace parts of Rouse or of
//     the node, or take its room, run by themselves. Then all others run at the same time, except that those of a lane
//     run one after the other (beside_test.go).
//  5. If a test fails, logs, events and the states of all pods are kept in the
//     folder that the failure names.
package knative
