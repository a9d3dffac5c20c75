// The files dualpod_* decide how pods that claim GPUs and pods that run models on them are combined. A GPU that Kubernetes
// gives to one pod alone is lost while that pod's model sleeps; so a function has two kinds of pods here (llm-d's fast
// model actuation does the same):
//
//   - a requester, a pod of the function's Knative Deployment. It claims GPUs, reports which it was given, and runs
//     nothing.
//   - a provider, a pod of ours that claims none and runs the model on those GPUs. It outlives its requester, asleep.
//
// Package decide decides which instances should be awake. Such an instance is a [Want] here, and [Plan] serves it:
//
//  1. A want raises the claims of its function by one ([Claim]): a requester is created, scheduled by Kubernetes, and
//     reports its devices.
//  2. If a sleeper of the function is on its devices, it is woken and bound to it ([Wake]; path hot, or warm if the
//     sleeper kept no process).
//  3. If not, a provider is created there ([Make]; path cold, or cold-freed if sleepers had to end first, by the limits
//     of a device).
//  4. The provider falls asleep: it is unbound, and the requester goes ([Unbind], [Release]).
//  5. A requester is deleted by others: its provider sleeps before the claim goes ([Sleep]).
//  6. A provider dies: its requester is free for the next.
//
// A wake precedes its claim in two cases: if only Rouse uses the GPUs of a node, and if requesters that are about to go
// hold the only devices that will be free. The new requester can then only get the same ones.
//
// [Plan] depends on the present state only: after a restart, and after each failure, it continues with the pods that
// exist. It is safe for concurrent use.
//
// [Derive] makes the provider's pod from the requester's; it knows Kubernetes' objects and makes no calls.
package knative
