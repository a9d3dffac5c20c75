// Package picker makes the activator the endpoint picker of an InferencePool (v1) of the Gateway API inference extension: a gateway
// asks it, by Envoy's external processing protocol, to which endpoint a request goes. The gateway moves the bytes; who may
// ask, how long a request waits, what it is charged and when its slot is free again are the activator's as for any other request.
// A pool without endpoints is no error: the request waits here until its model is awake. Where the gateway says which endpoints it allows, no other
// is named or woken, and where that leaves none the request is refused at once.
//
// It makes no decision of its own: the activator serves each request as if it had come over HTTP, and what it sends to an
// instance ([forward.Via]) becomes the name of an endpoint.
//
// The life of one request, which is one stream:
//
//  1. The header comes, and with it the body, in pieces or whole. Both are read as a client's are: in memory
//     that is accounted for, and not for ever.
//  2. The activator authenticates, holds and routes it. What it answers itself, a refusal or a list of models, is an
//     immediate response.
//  3. It sends the request to an instance: the gateway is told its address and those of two others that it may retry at
//     (x-gateway-destination-endpoint, as a header and as metadata), what instances are told by headers, and the body.
//  4. The answer of the instance comes by the gateway, which may say by which endpoint it is. Where the gateway lets us (FULL_DUPLEX_STREAMED), what goes on
//     to the client is what the activator makes of it, so that a stream that was cut ends as one; else
//     it is read for its usage only.
//  5. The slot is free when the answer has ended, or when the stream has: a gateway whose client leaves ends the stream.
//
// With [Config.Front] it names that address at once, of the activators themselves, which do all of this on their own port.
//
// Each stream has two goroutines: gRPC's, on which the activator serves, and one that receives.
package picker
