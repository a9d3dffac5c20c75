// Package peers brings a large file to many machines at once: each fetches a part of it from the file's source, and the rest from one
// another, in chunks of one size.
//
// The life of a [Node.Download]:
//
//  1. Chunks of an earlier process are kept.
//  2. Each peer is asked a few times a second which chunks it has, and which it is fetching from the source.
//  3. A chunk that a peer has comes from there, rare ones first. Of n fetching nodes, in the order of their names, node i mod n takes
//     chunk i from the source. A node that is done with its own takes chunks that others have not begun.
//  4. A failing peer is not asked for a while, and its chunks come from elsewhere.
//  5. Chunks are hashed as they arrive. If the whole has the right SHA-256, which the source has given, the file is done.
//  6. Otherwise every chunk from a peer is fetched again, from the source alone: a peer that sends wrong bytes costs one more copy.
//
// Answers are sealed (AES-GCM) with a key from the nodes' secret, the digest and the credential for the source; the path comes from the
// key. So a node may answer anybody: without the key nobody can read or change answers, or learn which files there are.
//
// In a download one goroutine owns the state; others transfer, ask or hash, and send it their results.
package peers
