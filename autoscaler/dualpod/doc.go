// Package dualpod decides how pods that claim GPUs and pods that run models on them
// go together. A GPU that Kubernetes gives to one pod alone is lost while that pod's
// model sleeps; so a function is two pods here (llm-d's fast model actuation does the
// same):
//
//   - a requester, a pod of the function's Knative Deployment. It claims GPUs, says which
//     it was given, and runs nothing.
//   - a provider, a pod of ours that claims none and runs the model on those GPUs. It
//     outlives its requester, asleep.
//
// It decides nothing about who should be awake: that is package decide's. What is to be
// awake is a [Want] here, and [Plan] finds the way to it:
//
//  1. A want raises the claims of its function by one ([Claim]): a requester comes, is
//     placed by Kubernetes, and says where it is.
//  2. A sleeper of the function is on its devices: it is woken and bound to it ([Wake], the
//     path hot, or warm where the sleeper kept no process).
//  3. None is: a provider is made there ([Make], the path cold; cold-freed where sleepers
//     had to end first, by the limits of a device).
//  4. The provider falls asleep: it is unbound, and the requester goes ([Unbind], [Release]).
//  5. A requester is deleted by anybody: its provider sleeps before the claim goes ([Sleep]).
//  6. A provider dies: its requester is free for the next.
//
// A wake goes ahead of its claim in two cases: where nobody but Rouse uses the GPUs of a
// node, and where the devices are held by requesters that are about to go and nothing else
// is free, so that the new one can only get the same.
//
// Plan is a function of what there is now, and of nothing else: after a restart, and after
// each failure, it goes on from whatever pods exist. It may be called from any goroutine.
//
// [Derive] makes the provider's pod from the requester's; it knows Kubernetes' objects and
// calls nobody.
package dualpod
