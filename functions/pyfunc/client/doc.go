// Package client lets any HTTP client of a Go program talk to a model through an
// /invocations endpoint, as mlflow-extensions' compat clients do for Python. Each
// request is put into an envelope, sent by POST to the endpoint, and the answer
// is made of the one that comes back: status, headers (Retry-After too), body.
//
//	transport, err := client.New(client.Config{Endpoint: "https://host/serving-endpoints/tiny/invocations"})
//	c := openai.NewClient(
//		option.WithBaseURL("https://host/serving-endpoints/tiny/v1"),
//		option.WithAPIKey(token),
//		option.WithHTTPClient(&http.Client{Transport: transport}),
//	)
//
// Which requests it takes, by the path below the endpoint (without /invocations):
//
//  1. /invocations, /ping, /health and /version themselves, which are the scoring
//     server's, are sent as they are.
//  2. Below /invocations/, as compat clients have it: the path is one of OpenAI's
//     API, below /v1/.
//  3. All others, /v1/chat/completions or /tokenize: the path is the model server's.
//  4. A request to another host, or not below the endpoint, is an error: it is
//     not the endpoint's to answer.
//
// What it can't do, because the envelope can't: a stream of events arrives whole.
// A program that wants the events as they come sends its request to /invocations
// itself, with "stream": true.
package client
