// Package inject brings the function into pods whose image does not have it. It is a mutating admission webhook for pods
// of Rouse's class. An init container copies the program rouse-function to a volume, and the container's command becomes
// that program, which starts what the container would have started.
//
// The API server asks for pods of a revision with an annotation of Rouse's. [decide] determines what the container runs,
// if need be from the image's configuration in its registry. [mutate] makes the changes, each on one field: unknown
// fields are kept. A pod whose image can't be read is left unchanged, with the reason in an annotation, which the
// autoscaler reports if the pod turns out to be no function.
//
// [Run] also maintains the webhook's certificate. There is no leader: concurrent replicas write the same.
package inject
