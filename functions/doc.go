// Package functions is one instance: a runtime as a child process, and the one
// door to it. It is what runs in a function's pod, and what local mode starts
// once per instance.
//
//	client paths ─► proxy ─► gate ─► runtime (child process)
//	control paths ─► supervise ─► start, wake, sleep, stop
//	                     └─► events: each change of state, as a CloudEvent
//
// The life of an instance:
//
//  1. [Run] listens and starts the runtime in the same moment. Requests are
//     refused, with the code loading, until the runtime has generated a token.
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
// Packages: process (a child that leaves nothing behind), runtime (the model
// servers), supervise (the states), proxy (the data path), cli (flags),
// functionstest (a model server without a model).
package functions
