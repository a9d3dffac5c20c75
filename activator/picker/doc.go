// Package picker makes the activator the endpoint picker of an InferencePool (v1) of the Gateway API inference
// extension. A gateway asks it for each request's endpoint by Envoy's external processing protocol, and carries the
// bytes itself. The activator serves the request as if it had come over HTTP; its call to an instance
// ([forward.Via]) becomes the name of an endpoint. A request of a pool without endpoints waits until its model is
// awake. If the gateway limits the endpoints, no other is named or woken.
//
// The life of one request, which is one stream:
//
//  1. The header arrives, then the body, read into accounted memory within a time limit.
//  2. The activator authenticates, holds and routes it. Its own answers become immediate responses.
//  3. The activator sends the request: it tells the gateway the instance's address and two for retries
//     (x-gateway-destination-endpoint, as header and metadata), the headers, and the body.
//  4. The answer arrives through the gateway. With FULL_DUPLEX_STREAMED the client gets the activator's version of
//     it; otherwise it is only read for its usage.
//  5. The slot is freed when the answer or the stream ends.
//
// With [Config.Front] it names the activators' own address at once. Each stream has two goroutines: gRPC's, on
// which the activator serves, and a receiving one.
package picker
