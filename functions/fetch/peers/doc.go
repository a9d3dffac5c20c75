// Package peers brings a large file to many machines at once: each fetches a part of it from the file's source, and the
// rest from one another.
//
// The source has said the file's SHA-256. A file is cut into chunks of one size. A [Node] is one process: it sends others the
// chunks that it has, those of an unfinished file too.
//
// The life of a [Node.Download]:
//
//  1. Chunks that an earlier process left are taken as they are.
//  2. The peers are looked up. Each is asked a few times a second which chunks it has, and which it is fetching from the source.
//  3. A chunk that a peer has comes from there, one that few have first. Each other chunk has one owner among the nodes that
//     fetch, which takes it from the source: chunk i belongs to node i mod n, in the order of their names. A node that has
//     nothing of its own left takes what others have not begun.
//  4. A peer that does not answer counts as gone. One that fails is left alone for a while, and its chunks come from elsewhere.
//  5. The chunks are hashed as they come. If the whole has the right SHA-256, the file is done.
//  6. If it has not, every chunk that came from a peer is fetched again, from the source alone.
//
// So a peer that sends something wrong costs one more copy at most, and nothing wrong is ever returned.
//
// Answers are sealed with the file's key (AES-GCM). It is made of a secret that the nodes share, of the digest, and of the
// credential with which the source is asked; the path that names the file is computed from it. So a node answers
// anybody: without the key an answer can't be read, by the asker or on the network, and a peer learns nothing about files whose
// key it can't compute. Bytes that were changed on their way are found at once.
//
// A Node does not find its peers and keeps no files: its user does. It is safe for many goroutines. In a download one goroutine
// owns the state; others transfer, ask or hash, and send it what came of that.
package peers
