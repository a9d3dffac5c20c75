// Package picker makes the activator the endpoint picker of an InferencePool (v1) of the Gateway API inference
// extension. A gateway asks it for each request's endpoint by Envoy's external processing protocol, and carries the
// bytes itself. To the activator the request came over HTTP, and its instance is a [forward.Via].
//
//  1. The header and the body arrive on one stream.
//  2. The activator serves the request. Its own answers become immediate responses.
//  3. Its request to an instance becomes the endpoint's address and two for retries
//     (x-gateway-destination-endpoint), headers and body.
//  4. The answer arrives through the gateway. With FULL_DUPLEX_STREAMED the client gets the activator's version of
//     it.
//  5. The slot is freed when the answer or the stream ends.
//
// With [Config.Front] it names the activators' own address. Each stream has three goroutines: gRPC's, which waits, one
// that receives and one that serves.
package picker
