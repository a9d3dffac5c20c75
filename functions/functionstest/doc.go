// Package functionstest is a model server without a model, for tests. It speaks the OpenAI API, answers deterministic tokens and fails in
// every way in which a real server does, as a flag or a request asks.
//
// It acts as a command runtime (--port, vLLM's sleep calls) or, if its arguments begin with "engine serve", as Rouse's own engine. [Main]
// is the whole program.
//
// The answer to a request with max_tokens N is the N words "t0 t1 t2 …". A request may carry its own faults, separated by commas, in the
// header [HeaderFault]:
//
//	hang            no answer, ever
//	delay=50ms      wait before the first byte
//	pause=5ms       wait between tokens
//	cut=3           end the connection after 3 tokens, in the middle of the answer
//	eof=3           end the stream after 3 tokens as if it were complete
//	stall=3         stop the stream after 3 tokens, without an end
//	status=500      answer this status
//	exit=3          the process exits with this status
//	exit-after=3    the process exits after 3 tokens
//	digest          answer the body's type, length and SHA-256 sum, as /v1/audio/… and /v1/images/… always do
//
// GET /stats returns the number of requests so far, of running requests and of clients that left.
package functionstest
