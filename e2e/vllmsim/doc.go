// Package vllmsim is a model server without a model and without a GPU. It behaves as vLLM does, or as SGLang,
// llama-server or Ray Serve, in its HTTP, metrics, memory, times and failures. Tests use a [Server] in their own
// process, and everything that starts a server as a program uses [Main]. The table servers has the differences between
// servers.
//
// The life of a server:
//
//  1. [New] checks the [Config]. Nothing is held and nothing runs.
//  2. [Server.Run] loads: it takes device memory, lets the time pass that reading the weights takes, and is ready
//     ([Server.Ready]). If memory is missing it returns vLLM's error, and [Main] exits as vLLM does.
//  3. Requests join a batch (package batch). Run steps it; each step takes the time
//     that its tokens take, times [Config.TimeScale].
//  4. POST /sleep gives device memory back, POST /wake_up takes it again, each in the time that its bytes take. A
//     sleeping server generates nothing.
//  5. The end of Run's context gives everything back.
//
// The text of an answer is a function of model, adapter, prompt and seed, so that two servers answer alike and a test
// can say what it expects. All simulators that use one folder share device memory (package device); a wake fails if too
// little is free. Weights that were dropped by sleep level 2 and not loaded again make garbage, with status 200.
//
// [Faults] break it on command. The server holds one lock for its engine; its
// methods and handlers may be called from any goroutine.
package vllmsim
