// Package functions is one instance: a runtime as a child process, and the one
// door to it. It is what runs in a function's pod, and what local mode starts
// once per instance.
//
//	client paths ─► proxy ─► gate ─► [handler ─►] runtime (child process)
//	/invocations ─► pyfunc ─► client paths, in process
//	control paths ─► supervise ─► fetch, start, wake, sleep, stop
//	                     └─► events: each change of state, as a CloudEvent
//
// The life of an instance:
//
//  1. [Run] listens and starts the runtime in the same moment, or first fetches its
//     model. Requests are refused, with the code loading, until the runtime has
//     generated a token.
//     In a cluster it first asks the control plane what it is ([Config.Join]).
//  2. It serves the client paths (package proxy) and the control paths (package
//     api/control), and reports each change of state.
//  3. It sleeps and wakes when told so; it never decides that by itself.
//  4. A stop call, or the end of Run's context, drains and ends the runtime with
//     all that it started; Run returns. Closing [Config.Kill] ends it at once.
//
// It refuses to pass administrative paths of the runtime, to be reached over TCP
// by anybody without the control plane's token, and to look healthy when it is
// not: readiness is a generated token.
//
// Its packages, from the inside out:
//
//	process        a child that leaves nothing behind
//	shim         a process that is the runtime's parent and outlives us
//	runtime        the model servers: how each is started, probed, put to sleep and spoken to
//	fetch          models, from where their references say into a cache on this machine
//	supervise      the states of an instance, and the gate that requests enter by
//	proxy          the data path between clients and the runtime
//	handler        a user's program between the two, for pre- and post-processing
//	adapters       LoRA adapters, and the list of models
//	metrics        /metrics, with the same names whatever the runtime
//	pyfunc         the paths and envelopes of MLflow's scoring server (envelope, client)
//	join           a cluster's control plane, which says what the instance is
//	lead           several functions of one host that share one runtime
//	cli            flags and environment
//	functionstest  a model server without a model, for tests
//	internal       environ: environments as lists
//
// They meet here: assemble.go puts them together, handler.go is the one door.
package functions
