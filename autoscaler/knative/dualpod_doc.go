// The files dualpod_* combine pods that claim GPUs with pods that run models on them. A GPU that Kubernetes gives to one
// pod alone is lost while that pod's model sleeps. So a function has two kinds of pods, as in llm-d's fast model
// actuation:
//
//   - A requester, a pod of the function's Deployment, claims GPUs, reports which it was given, and runs nothing.
//   - A provider, a pod of ours, claims none and runs the model on those GPUs. It outlives its requester, asleep.
//
// An instance that package decide wants awake is a [Want], and [Plan] serves it:
//
//  1. [Claim]: a requester is created, scheduled by Kubernetes, and reports its devices.
//  2. [Wake]: a sleeper of the function on its devices is woken and bound to it (path hot, or warm without a process).
//  3. [Make]: if there is none, a provider is created there (path cold, or cold-freed if sleepers had to end first).
//  4. [Unbind], [Release]: the provider falls asleep, and the requester goes.
//  5. [Sleep]: a requester is deleted by others; its provider sleeps before the claim goes.
//  6. A provider dies: its requester is free for the next.
//
// A wake precedes its claim where the new requester can only get the same devices: if only Rouse uses the GPUs of a
// node, or if requesters that are about to go hold the only devices that will be free.
//
// [Plan] depends on the present state only: it continues after a restart or failure with the pods that exist.
package knative
