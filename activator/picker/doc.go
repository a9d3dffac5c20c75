// Package picker makes the activator the endpoint picker of an InferencePool (v1) of the Gateway API inference
// extension. A gateway asks it for a request's endpoint through Envoy's external processing protocol, and carries the
// bytes itself. Authentication, queueing, charges and slots are the activator's, as for any other request. A pool
// without endpoints is no error: the request waits here until its model is awake. If the gateway limits the endpoints,
// no other is named or woken, and if none remains the request is refused at once.
//
// It makes no decisions of its own: the activator serves each request as if it had come over HTTP, and its call to an
// instance ([forward.Via]) becomes the name of an endpoint.
//
// The life of one request, which is one stream:
//
//  1. The header arrives, and with it the body, in pieces or whole. Both are read as a client's are: into accounted
//     memory, within a time limit.
//  2. The activator authenticates, holds and routes it. Its own answers, such as a refusal or a list of models,
//     become immediate responses.
//  3. The activator sends the request to an instance. It tells the gateway the instance's address and two others for
//     retries (x-gateway-destination-endpoint, as a header and as metadata), the headers for the instance, and the
//     body.
//  4. The instance's answer arrives through the gateway, which may name the endpoint. If the gateway allows it
//     (FULL_DUPLEX_STREAMED), the client gets the activator's version of the answer, so that a cut stream ends as
//     one. Otherwise the answer is only read for its usage.
//  5. The slot is freed when the answer or the stream ends: a gateway whose client leaves ends the stream.
//
// With [Config.Front] it names the activators' own address at once; they do all of this on their own port.
//
// Each stream has two goroutines: gRPC's, on which the activator serves, and a receiving one.
package picker
