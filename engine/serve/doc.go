// Package serve puts an engine behind the OpenAI API on a loopback port or a Unix socket (`rouse engine serve`).
//
// The life of a chat request:
//
//  1. The body is read whole and parsed. A known field of the wrong type is an error.
//  2. The chat template renders the messages. Special tokens count in the template's own
//     text only, never in what a client wrote.
//  3. A constraint on the text is compiled to a grammar.
//  4. The engine queues the request. Nothing is written before the first token, so every
//     failure until then has its own status.
//  5. Tokens become events (stream) or are collected. Calls of tools are parsed from the text.
//  6. If the client leaves, the engine drops the request before its next step.
//  7. A failure after the first byte is an event data: {"error":{…}}, and ends the stream
//     without [DONE]. Another server can continue a cut stream (see stateHeader).
//
// There is no authentication: other hosts can't reach the server. docs/engine-api.md lists every route and field. Only
// writeError and a handler's success path write a status.
package serve
