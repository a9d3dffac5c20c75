// Package resume lets a cut stream of a vLLM continue at another instance, from its prompt and the tokens so far, without a visible seam.
// It is a transport between an instance's proxy and its vLLM. See docs/design/0020.
//
// The life of one stream:
//
//  1. The activator has asked for the state ([control.HeaderState]). [qualify] decides whether the stream can be continued exactly. If
//     not, the request goes to vLLM unchanged, and the answer's header says why.
//  2. vLLM is also asked for token IDs (return_token_ids).
//  3. Each event is passed on without the IDs, after a comment with its tokens. The first comment also has ID, time, model, mark and
//     prompt, the latter as number of tokens and digest.
//  4. The stream is cut. An error of vLLM's own and its finish_reason "abort" count as a cut too. The activator sends the same request
//     with all comments to another instance.
//  5. That instance asks its vLLM for one token of the same request, to get the prompt's IDs. A different prompt or mark is refused. The
//     last tokens so far may be an incomplete character, whose text was never sent: they are generated again.
//  6. It asks /v1/completions for the rest with these IDs as the prompt, and converts the chunks to the client's format. The usage covers
//     the whole answer. If only the last events of an answer are missing, they are sent without vLLM.
//
// vLLM's numbers depend on the rest of a batch: two instances may differ from some token on, as one may without a cut.
//
// A [Transport] is safe for many goroutines and starts none.
package resume
