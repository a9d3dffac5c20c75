// Package protocol defines the messages between an agent and a front door. The agent dials both kinds of connections,
// which ALPN tells apart: one control stream, and links for requests. The callers authenticate them.
//
// The control stream is a gRPC bidirectional stream ([Method]) of JSON messages:
//
//  1. The agent sends [Up] with Hello. The front door answers [Down] with Welcome, or ends the stream with a status.
//  2. The agent sends every function that it may serve, then changes. A function's message is its whole state.
//  3. Each side sends a beat twice a second. The answer to an agent's beat renews its lease, counted from when it sent it.
//  4. The front door sends demand, a level; the agent answers with its places for it.
//  5. The front door sends a [Manifest] of a function that no cluster has; the agent answers with [Applied].
//  6. Either side announces its end: an agent with Leaving, a front door with GoAway.
//
// A change that a receiver must not ignore comes with a higher [Hello].Protocol.
//
// A link carries HTTP/1.1 requests against the direction in which it was dialled, one at a time, after a [LinkHello] with
// two bytes of its length. An answer names its request ([api.InTurn]); if anything else arrives, the connection is closed.
// A request of which the agent may have seen a part is not sent again.
package protocol
