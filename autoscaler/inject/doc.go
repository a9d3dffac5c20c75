// Package inject brings the function into pods whose image does not have it.
//
// It is a mutating admission webhook for pods of Rouse's class. An init container copies the program rouse-function to a
// volume; the container's command becomes that program, which starts what the container would have started.
//
// The life of one pod:
//
//  1. The API server asks, for pods of a Knative revision with an annotation of Rouse's.
//  2. [decide] determines what the container runs: from its revision's annotations, its command, its image's name, or else
//     the image's own configuration, which is read from its registry ([images]).
//  3. [mutate] makes the changes, each as one operation on one field: fields that this program does not know are kept.
//  4. A pod whose image can't be read is left unchanged, with the reason in an annotation, which the autoscaler reports if
//     the pod turns out to be no function.
//
// [Run] serves that, and maintains its certificate. There is no leader: concurrent replicas write the same.
package inject
