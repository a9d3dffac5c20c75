// Package resume lets a cut stream of a vLLM continue at another instance, from its prompt and the tokens so far, without a
// visible seam. It is a transport between an instance's proxy and its vLLM. It reports a stream's state in the way of our own
// engine ([control.HeaderState]). See design/0020.
//
// The life of one stream:
//
//  1. The activator has asked for the state. [Transport] reads the request. Only [qualify] decides whether the stream can be
//     continued exactly. If not, the request goes to vLLM unchanged, and the answer's header gives the reason, for the proxy's
//     error event.
//  2. vLLM is also asked for token IDs (return_token_ids). Its first event shows whether it supports that; if not, it is not
//     asked again.
//  3. Each event is passed on without the IDs. A comment with the event's tokens precedes it, in the same write. The first
//     comment has ID, time, model, mark and prompt, the latter as number of tokens and digest, since a prompt would not fit.
//  4. The stream is cut. An error of vLLM's own and its finish_reason "abort" count as a cut too. The proxy aborts its
//     connection, and the activator sends the same request with all comments to another instance.
//  5. That instance asks its vLLM for one token of the same request, to get the prompt's IDs. A different prompt, as a template
//     with today's date makes it, or a different mark is refused. The last tokens so far may be an incomplete character, whose
//     text was never sent: /detokenize shows that, and they are generated again.
//  6. It asks /v1/completions for the rest with these IDs as the prompt, and converts the chunks to the client's format. The
//     usage covers the whole answer. If only the last events of an answer are missing, they are sent without vLLM.
//
// It refuses unknown fields, and everything that vLLM would not handle identically with a prompt of IDs. These are
// parsers, several texts, log probabilities, penalties that count only the answer, seeds of sampled tokens,
// structured outputs, stop strings and images. vLLM's numbers depend on the rest of a batch. So two instances may
// differ from some token on, as one may without a cut. The text that the client already has stays.
//
// A [Transport] is safe for many goroutines and starts none.
package resume
