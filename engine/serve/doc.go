// Package serve puts an engine behind the OpenAI API on a loopback port or a Unix socket. It implements `rouse engine
// serve`: one process, one model.
//
// The life of a chat request:
//
//  1. The body is read whole, up to a limit, and parsed. A known field of the wrong
//     type is an error; unknown fields are ignored.
//  2. The model's chat template renders the messages to a prompt. Special tokens count
//     in the template's own text only, never in what a client wrote.
//  3. A constraint on the text (response_format and the fields like it, or a call that
//     tool_choice forces) is compiled to a grammar; the last grammars are cached.
//  4. The engine queues the request. Nothing is written to the client before the first
//     token, so every failure until then has its own status.
//  5. Tokens become events (stream) or are collected (no stream). Where the request has
//     tools, calls are parsed from the text in the format of the model's family.
//  6. A client that leaves cancels its request's context: the engine drops it
//     before its next step.
//  7. A failure after the first byte sends an event data: {"error":{…}} and ends
//     the stream without [DONE]. A proxy that asks for a stream's state can continue a
//     stream that is cut on another server (see stateHeader).
//
// Other routes are vLLM's /tokenize, /detokenize, /sleep, /wake_up, /is_sleeping, /v1/load_lora_adapter,
// /v1/unload_lora_adapter, /health, /version, /load and /metrics. There is no authentication: the server refuses to
// listen on an address that other hosts can reach, and the process that started it decides which requests reach it.
// docs/engine-api.md lists every field.
//
// Images are read by models with a projector only. Audio, and constraints that can't be enforced are not supported: a field that asks for one of them is an
// error.
//
// Every status is written by writeError or by the one success path of its handler; toError maps errors to statuses.
package serve
