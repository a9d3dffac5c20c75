// Package vllmsim is a model server without a model and without a GPU. It behaves as vLLM, SGLang, llama-server or
// Ray Serve (see servers) in its HTTP, metrics, memory, times and failures. [Main] is the program.
//
//  1. [Server.Run] takes device memory, lets the time of loading pass, and is ready ([Server.Ready]).
//  2. Requests join a [Batch]. Each of its steps takes the time of its tokens, times [Config.TimeScale].
//  3. POST /sleep gives device memory back, POST /wake_up takes it again, each in the time that its bytes take.
//  4. The end of Run's context gives everything back.
//
// The text of an answer is a function of model, adapter, prompt and seed. Weights that were dropped and not loaded
// again make garbage, with status 200. Methods and handlers may be called from any goroutine.
package vllmsim
