// Package protocol defines the messages between an agent and a front door. The agent dials both kinds of connections,
// which ALPN tells apart: one control stream, and links for requests. The callers authenticate them.
//
// The control stream is a gRPC bidirectional stream ([Method]) of JSON messages (content-type application/grpc+json).
// Each end of it has one reader and one writer. Its life:
//
//  1. The agent sends [Up] with Hello. The front door checks its identity and answers [Down] with Welcome, or ends
//     the stream with a status that explains the error.
//  2. The agent sends every function that it may serve, then changes. A function's message is its whole state: a
//     later one replaces it, an empty one removes it.
//  3. Each side sends a beat twice a second. The front door's answer to an agent's beat renews the agent's lease,
//     counted from when the agent sent that beat.
//  4. The front door sends demand, a level; the agent answers with its places for it.
//  5. A function that no cluster has is created where the agent [Accepts] it: the front door sends a [Manifest], and
//     the agent answers with [Applied]; it may refuse. A Manifest without text removes what this front door had
//     applied.
//  6. Either side announces its end: an agent with Leaving, a front door with GoAway.
//
// A receiver ignores unknown fields. A change that must not be ignored comes with a higher [Hello].Protocol, which an
// older front door refuses.
//
// A link carries HTTP/1.1 requests against the direction in which it was dialled, one at a time. A request of which the
// agent may have seen a part is not sent again. Its life:
//
//  1. The agent dials, with [LinkProtocol] as the ALPN protocol, and sends the [LinkHello]: two bytes of length, and
//     JSON.
//  2. The front door accepts and calls [AcceptLink], which reads the LinkHello with limits on size and time. The
//     connection is then idle in a session's [Pool].
//  3. The agent's [LinkServer] keeps as many idle connections as it has free places, at least two, so that each
//     request finds one. If there is none, the request waits for one for a few seconds.
//  4. The front door writes a request at once (package localhttp), and the agent answers it with net/http's server.
//     The answer names the request ([api.InTurn]); if anything else arrives, the connection is closed. After the
//     answer the connection is idle again. A request with a large body, a body of unknown length or trailers uses a
//     connection of its own.
//  5. An abandoned request closes its connection. A slow reader does not block others.
//  6. An agent that ends announces it on its control stream. The front door then calls [Pool.Retire], which closes
//     idle connections, and the agent [LinkServer.Shutdown], which waits for running requests. The control stream and
//     the kernel ([Probe]) detect a dead peer.
package protocol
