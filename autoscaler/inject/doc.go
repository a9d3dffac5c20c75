// Package inject brings the function into pods whose image does not have it, so that any image can be a function.
//
// It is a mutating admission webhook for pods of Rouse's class. An init container copies the program rouse-function, which needs nothing of
// the image, to a volume; the container's command becomes that program, which starts what the container would have started. The rest of the
// container is unchanged: its user, environment, volumes and security, and so are other containers.
//
// The life of one pod:
//
//  1. The API server asks, only for pods of a Knative revision with an annotation of Rouse's (the conditions are in the webhook's
//     configuration, manifests/components/any-image).
//  2. [decide] determines what the container runs: from its revision's annotations, its command, its image's name, or else the image's own
//     configuration, which is read from its registry ([images]).
//  3. [mutate] makes the changes, each as one operation on one field: fields that this program does not know are kept.
//  4. An image that has the function already, and a pod that was changed before, are left unchanged. So is a pod whose image can't be read,
//     with the reason in an annotation, which the autoscaler reports if the pod turns out to be no function.
//
// [Run] serves that, and maintains its certificate (certificate.go). The authority is in a Secret, and each replica
// signs its own certificate with it. The webhook's configuration gets the authority, and its rules once the service
// answers. Every replica does all of that: there is no leader, and concurrent replicas write the same.
//
// It refuses a container that it can't wrap, and says what to change. It writes to no pod itself and keeps nothing but a cache of images by
// their digests.
//
// Its methods may be called from any goroutine.
package inject
