// Package peers brings a large file to many machines at once: each fetches a part of it from the file's source, and the
// rest from one another.
//
// The source must have given the file's SHA-256. A file is cut into chunks of one size. A [Node] is one process: it sends
// its chunks to others, even of an unfinished file.
//
// The life of a [Node.Download]:
//
//  1. Chunks of an earlier process are kept.
//  2. The peers are looked up. Each is asked a few times a second which chunks it has, and which it is fetching from the source.
//  3. A chunk that a peer has comes from there, rare ones first. Each other chunk has one owner among the fetching nodes,
//     which takes it from the source: chunk i belongs to node i mod n, in the order of their names. A node without
//     chunks of its own left takes chunks that others have not begun.
//  4. A peer that does not answer counts as gone. A failing one is not asked for a while, and its chunks come from elsewhere.
//  5. The chunks are hashed as they arrive. If the whole has the right SHA-256, the file is done.
//  6. Otherwise every chunk that came from a peer is fetched again, from the source alone.
//
// So a peer that sends wrong bytes costs at most one more copy, and wrong content is never returned.
//
// Answers are sealed with the file's key (AES-GCM). The key is derived from a secret that the nodes share, the digest, and
// the credential for the source; the path of the file is derived from the key. So a node may answer anybody. Without the
// key an answer can't be read, neither by the asker nor on the network. A peer learns nothing about files whose key it
// can't compute, and changed bytes are detected at once.
//
// A Node does not find its peers and keeps no files: its user does. It is safe for many goroutines. In a download one
// goroutine owns the state; others transfer, ask or hash, and send it their results.
package peers
