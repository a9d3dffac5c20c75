// Package serve puts an engine behind the OpenAI API on a loopback port or a
// Unix socket. It is what `rouse engine serve` runs: one process, one model.
//
// The life of a chat request:
//
//  1. The body is read whole, up to a limit, and parsed: strict about the types
//     of the fields that it knows, indifferent to the others.
//  2. The model's template makes the messages a prompt. Special tokens count in
//     the template's own text only, never in what a client wrote.
//  3. A form that the text must have (response_format and its kin, or a call that
//     tool_choice forces) becomes a grammar; the last ones are kept.
//  4. The engine queues it. Nothing is written to the client before the first
//     token is there, so whatever goes wrong until then has its own status.
//  5. Tokens become events (stream) or are collected (no stream). Where there are
//     tools, calls are found in the text as the model's family writes them.
//  6. A client that leaves cancels its request's context: the engine drops it
//     before its next step.
//  7. A failure after the first byte sends an event data: {"error":{…}} and ends
//     the stream without [DONE].
//
// Routes beside OpenAI's: vLLM's /tokenize, /detokenize, /sleep, /wake_up,
// /is_sleeping, /v1/load_lora_adapter, /v1/unload_lora_adapter, /health, /version,
// /load and /metrics. They are not guarded: the server refuses to listen on
// anything that another host could reach. Whoever owns this process is the only
// door to it. docs/engine-api.md lists every field.
//
// What it refuses: images, audio, and parts of a form that can't be kept. A
// field that asks for one of them is an error, not ignored. Fields that are
// known to nobody here are ignored.
//
// Every status is written by writeError or by the one success path of its
// handler; the table from errors to statuses is toError.
package serve
