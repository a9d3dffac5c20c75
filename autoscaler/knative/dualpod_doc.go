// The files dualpod_* combine pods that claim GPUs with pods that run models on them: a GPU that Kubernetes gives to one
// pod alone is lost while that pod's model sleeps. So a function has two kinds of pods, as in llm-d's fast model
// actuation. A requester, a pod of its Deployment, claims GPUs and runs nothing. A provider, a pod of ours, claims none,
// runs the model on those GPUs, and outlives its requester, asleep.
//
// An instance that package decide wants awake is a [Want], and [Plan] serves it:
//
//  1. [Claim]: a requester is created, scheduled by Kubernetes, and reports its devices.
//  2. [Wake]: a sleeper of the function on its devices is woken and bound to it (path hot, or warm without a process).
//  3. [Make]: if there is none, a provider is created there (path cold, or cold-freed if sleepers had to end first).
//  4. [Unbind], [Release]: the provider falls asleep, and the requester goes.
//  5. [Sleep]: a requester is deleted by others; its provider sleeps before the claim goes.
//
// A wake precedes its claim where the new requester can only get the same devices. [Plan] depends on the present state
// only: it continues after a restart or failure.
package knative
