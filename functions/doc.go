// Package functions runs one instance: a runtime as a child process, behind one HTTP handler.
//
//	client paths ─► proxy ─► gate ─► [handler ─►] runtime (child process)
//	/invocations ─► pyfunc ─► client paths, in process
//	control paths ─► supervise ─► fetch, start, wake, sleep, stop
//	                     └─► events: each change of state, as a CloudEvent
//
// The life of an instance:
//
//  1. [Run] listens, fetches the model if need be, and starts the runtime. In a cluster it first asks the control plane what to run
//     ([Config.Join]). Requests are refused with the code loading until the runtime has generated a token.
//  2. It serves the client paths and the control paths (package api/control), and reports each change of state.
//  3. It sleeps and wakes only when told to.
//  4. A stop call, or the end of Run's context, drains and ends the runtime with all that it started; Run returns. Closing [Config.Kill]
//     ends it at once.
//
// Administrative paths of the runtime are never passed on. Over TCP the instance's own control paths need the control plane's token.
package functions
