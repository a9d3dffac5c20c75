// Package requester runs in a pod that claims GPUs for another pod. It reports its GPUs, answers readiness probes on
// behalf of the pod that runs the model, and holds the claim until it is released.
//
// The interface is the one of llm-d's dual-pods requester, on the function's own port:
//
//	GET  /v1/dual-pods/accelerators             the UUIDs, as a JSON list
//	GET  /v1/dual-pods/accelerator-memory-usage bytes in use by UUID, by any process
//	POST /v1/become-ready, /v1/become-unready   sets the answer of /ready
//	GET  /ready                                 200 or 503; for probes, without a token
//	POST /v1/set-log?startPos=N                 the provider's log from byte N on
//	GET  /v1/proxy/config, PUT                  where other requests go: {"address","port"}
//	POST /v1/release                            the claim may go (not in llm-d's)
//
// All but /ready require the instance's token for its control plane. Requests for other
// paths go to the provider, if there is one.
//
// The life of a claim:
//
//  1. The pod has joined and was told that it is a requester: nothing is started.
//  2. It is bound: it gets the provider's address and becomes ready.
//  3. The provider sleeps: the claim becomes unready, is released, and its pod deleted.
//  4. If the pod is deleted first, it waits in [Requester.Run] for the release, which
//     comes when the provider sleeps; Kubernetes bounds that by the pod's grace period.
//
// All methods are safe for many goroutines; Run is called once.
package requester
