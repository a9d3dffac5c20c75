// Package vllmsim is a model server without a model and without a GPU, which
// behaves as vLLM does, and on demand as SGLang, llama-server or Ray Serve: their
// HTTP, metrics, memory, time and ways to fail. Tests use a [Server] in their own
// process, and everything that starts a server as a program uses [Main]. What differs
// between servers is data: the table servers.
//
// The life of a server:
//
//  1. [New] checks the [Config]. Nothing is held and nothing runs.
//  2. [Server.Run] loads: it takes device memory, lets the time pass that reading
//     the weights takes, and is ready ([Server.Ready]). Where memory is missing it
//     returns vLLM's words for it, and [Main] exits as vLLM does.
//  3. Requests join a batch (package batch). Run steps it; each step takes the time
//     that its tokens take, times [Config.TimeScale].
//  4. POST /sleep gives device memory back, POST /wake_up takes it again, each
//     in the time that its bytes take. What sleeps generates nothing.
//  5. The end of Run's context gives everything back.
//
// What is true of it: the text of an answer is a function of model, adapter,
// prompt and seed, so that two servers answer alike and a test can say what it
// expects. Device memory is shared by every simulator that uses one folder
// (package device), and is what makes a wake fail. Weights that were dropped by
// sleep level 2 and not loaded again make garbage, with status 200.
//
// [Faults] break it on command. The server holds one lock for its engine; its
// methods and handlers may be called from any goroutine.
package vllmsim
