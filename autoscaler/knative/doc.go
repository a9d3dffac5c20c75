// Package knative carries out the autoscaler's decisions in a Knative cluster:
// an instance is a pod of a revision, and starting and stopping one is a change
// of its Deployment's scale.
package knative
