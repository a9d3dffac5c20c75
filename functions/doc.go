// Package functions runs one instance: a runtime as a child process, behind one
// HTTP handler. It runs in a function's pod, and local mode starts one process
// of it per instance.
//
//	client paths ─► proxy ─► gate ─► [handler ─►] runtime (child process)
//	/invocations ─► pyfunc ─► client paths, in process
//	control paths ─► supervise ─► fetch, start, wake, sleep, stop
//	                     └─► events: each change of state, as a CloudEvent
//
// The life of an instance:
//
//  1. [Run] listens, fetches the model if need be, and starts the runtime. Requests
//     are refused with the code loading until the runtime has generated a token.
//     In a cluster the instance first asks the control plane what to run ([Config.Join]).
//  2. It serves the client paths (package proxy) and the control paths (package
//     api/control), and reports each change of state.
//  3. It sleeps and wakes only when told to.
//  4. A stop call, or the end of Run's context, drains and ends the runtime with
//     all that it started; Run returns. Closing [Config.Kill] ends it at once.
//
// It never passes on administrative paths of the runtime. Over TCP its own control
// paths need the control plane's token. It is ready only once a token was generated.
//
// Its packages, from the inside out:
//
//	process        a child process, ended with all that it started
//	shim           the runtime's parent process, which outlives ours
//	runtime        the model servers: how to start, probe, suspend and call each
//	fetch          downloads models into a cache on this machine
//	supervise      the states of an instance, and the gate for requests
//	proxy          the data path between clients and the runtime
//	adapters       LoRA adapters, and the list of models
//	metrics        /metrics, with the same names whatever the runtime
//	pyfunc         the paths and envelopes of MLflow's scoring server
//	leader         several functions of one host share one runtime
//	cli            flags and environment
//	functionstest  a model server without a model, for tests
//
// assemble.go connects them; handler.go routes all requests. Here are also the user's program between clients and runtime
// (userhandler.go), the registration at a cluster's control plane (registrar.go), snapshots of runtimes by CRIU (snapshot.go)
// and the pod that claims GPUs for another (requester.go).
package functions
