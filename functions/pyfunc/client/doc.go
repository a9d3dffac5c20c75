// Package client lets any HTTP client of a Go program talk to a model through an
// /invocations endpoint, as mlflow-extensions' compat clients do for Python. Each
// request is put into an envelope and sent by POST to the endpoint. The answer comes
// from the envelope in the endpoint's answer: status, headers (Retry-After too), body.
//
//	transport, err := client.New(client.Config{Endpoint: "https://host/serving-endpoints/tiny/invocations"})
//	c := openai.NewClient(
//		option.WithBaseURL("https://host/serving-endpoints/tiny/v1"),
//		option.WithAPIKey(token),
//		option.WithHTTPClient(&http.Client{Transport: transport}),
//	)
//
// Requests by the path below the endpoint (without /invocations):
//
//  1. /invocations, /ping, /health and /version themselves, which are the scoring
//     server's, are sent unchanged.
//  2. Below /invocations/, as in compat clients: the path is one of OpenAI's
//     API, below /v1/.
//  3. All others, such as /v1/chat/completions or /tokenize: the path is the model server's.
//  4. A request to another host, or not below the endpoint, is an error.
//
// The envelope has no streaming: a stream of events arrives as a whole. A program that needs the events as they come
// sends its request to /invocations itself, with "stream": true.
package client
