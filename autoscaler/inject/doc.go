// Package inject brings the function into pods whose image does not have it, so that any image can be a function.
//
// It is a mutating admission webhook for pods of Rouse's class. An init container copies the program rouse-function,
// which needs nothing of the image, to a volume; the container's command becomes that program, which starts what the
// container would have started. What the container is apart from that stays: its user, environment, volumes, security,
// and other containers.
//
// The life of one pod:
//
//  1. The API server asks, for pods of a Knative revision with an annotation of Rouse's and for no other (the
//     conditions are in the webhook's own configuration, manifests/components/any-image).
//  2. [decide] says what the container runs: from its revision's annotations, its command, its image's name, or else the
//     image's own configuration, which is read from its registry ([images]).
//  3. [mutate] makes the changes, each as one operation on one field: what this program does not know of a pod is kept.
//  4. An image that has the function already, and a pod that was changed before, stay as they are. One whose image can't be read stays too,
//     with the reason in an annotation, which the autoscaler reports where the pod turns out to be no function.
//
// [Run] serves that, and sees to its certificate: the authority is in a Secret, each replica signs a certificate of its own with it, and
// the webhook's configuration gets the authority, and the rules by which it is asked, once the service answers
// (certificate.go). Every replica does all of that: there is no leader, and replicas that do it at once write the same.
//
// It refuses a container that it can't wrap, with what to change. It writes to no pod itself and keeps nothing but a cache
// of images by their digests.
//
// Its methods may be called from any goroutine.
package inject
