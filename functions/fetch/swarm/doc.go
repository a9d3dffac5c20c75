// Package swarm brings a large file to many machines: each fetches a part of it from the
// file's source, and the rest from one another, while they fetch.
//
// The file's SHA-256 is known before, from the source. A file is cut into chunks of one
// size ([ChunkSize]). A [Node] is one process. It keeps a log of the chunks that it has,
// which it answers questions from, and reads the logs of its peers.
//
// The life of a [Node.Download]:
//
//  1. What an earlier process left is read, and compared with its journal.
//  2. The peers are looked up, and each one's log is followed: a question waits at the peer
//     until there is something new.
//  3. Each chunk has one node that fetches it from the source, the one with the highest hash
//     of node and chunk. A node that has fetched its own takes those that others have not
//     begun. So the source sends about one copy of the file to all nodes together.
//  4. What a peer has comes from the peer, the rarest chunk first. It must have the sum
//     that the peer's log says, and that somebody vouches for: a node vouches for what came to it from the
//     source, and for all once it has proved the whole. A node passes on at once what it has got,
//     so that chunks spread like a tree.
//  5. A transfer that takes much longer than others is begun a second time elsewhere; who comes
//     second is cancelled.
//  6. The whole is hashed along the way. Has it the SHA-256 that the source said, the file is
//     done, and this node vouches for all of it.
//
// Who lies is found so:
//
//   - Bytes that have not the sum which the sender's own log says, or that were not sealed with the file's key: the
//     sender is avoided from now on.
//   - Two nodes vouch for different contents of a chunk: that chunk comes from the source, and who
//     was wrong is avoided. What only they vouched for is fetched again.
//   - The whole has the wrong SHA-256 and nobody disagrees: chunks that came from peers are fetched from the
//     source in random order, until one differs. Each node that finds this out vouches for what it
//     fetches, so the others see the difference without fetching as much.
//
// So a lie costs time and, where nobody else has the file yet, up to another copy of the file from
// the source; it is never part of what Download returns as good. Who is avoided stands in the log by address.
//
// Who may have a file: who knows its [Key], which is made of a secret that a group of nodes shares, of the
// digest, and of the credential with which the file's source is asked. Answers are sealed with that key (AES-GCM),
// and the path that names a file is made of it one way. So nothing need be asked of who asks: without the key
// the answer says nothing, to a listener on the network neither, and a peer that is asked learns nothing of
// files whose key it cannot make.
//
// It refuses to find out who its peers are (a function of its user's does), to keep files (its user does), and
// to fetch a file whose SHA-256 nobody has said.
//
// A Node is safe for many goroutines. A download has one goroutine that owns its state; others fetch, follow a peer or hash,
// and send it what came of that.
package swarm
