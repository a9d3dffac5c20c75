// Package resume has the streams of a vLLM go on at another instance where theirs is cut, from prompt and tokens so far, so
// that the client sees no seam. It is a transport between an instance's proxy and its vLLM, and makes that speak of
// a stream's state as our own engine does ([control.HeaderState]). design/0020 says why.
//
// The life of one stream:
//
//  1. The activator has asked for the state. [Transport] reads the request: [qualify] decides whether it can go on exactly, and is
//     the only place that does. One that can't goes to vLLM as it came, and the answer's header says why, for the proxy's error event.
//  2. vLLM is asked for token ids as well (return_token_ids). Its first event shows whether it knows that; one that does not is
//     not asked again.
//  3. Each event goes on without the ids, with a comment in front of it, in the same write: the tokens of the event. The first
//     comment has id, time, model, mark and prompt, the latter as number of tokens and digest. A prompt itself would not fit.
//  4. The stream is cut, which an error of vLLM's own and its finish_reason "abort" count as. The proxy aborts its connection, and the activator
//     sends the same request with all comments to another instance.
//  5. That asks its vLLM for one token of the same request, which tells the prompt's ids. Another prompt, as a template with
//     today's date makes it, or another mark is refused. Of the tokens so far the last ones may be a part of a character, whose text
//     nobody has seen: /detokenize shows it, and they are made again.
//  6. It asks /v1/completions for the rest with these ids as the prompt, and makes of its chunks those that the client was getting. Usage
//     is that of the whole. An answer that had ended, but for its last events, is ended without vLLM.
//
// What it refuses: all that vLLM would not do alike from a prompt of ids (parsers, several texts, log probabilities, penalties that
// count the answer alone, seeds of drawn tokens, structured outputs, stop strings, images), and whatever it does not know.
// vLLM's numbers depend on what else is in a batch: of two instances one may say something else from some token on, as it may
// without a cut. What the client has got stays.
//
// A [Transport] is safe for many goroutines and starts none.
package resume
