// Package fetch downloads a model from the source that its reference names into a cache that several processes share.
//
// docs/functions.md has the grammar of references. The life of a [Cache.Fetch]:
//
//  1. A finished reference whose content cannot change (a commit, a digest, a checksum) is returned once its files' sizes are checked.
//  2. The first caller locks the reference; others wait and see its progress.
//  3. The source is asked for names, sizes and digests. If the cache has that content, or the source does not answer, the cached is used.
//  4. The least recently used models and folders are evicted to make room, except those in use. Without enough room it fails.
//  5. Missing files are downloaded into parts, which survive a crash, checked against the source's metadata (SHA-256, a git object's
//     id, MD5, size), and become blobs.
//  6. A tree of links to the blobs is renamed into place, then the entry is written. No name ever means half a model.
//
// The folder:
//
//	blobs/sha256/HEX   files by content, read-only
//	parts/             partial downloads, with their server's metadata
//	entries/           one JSON file for each finished reference
//	trees/HEX/         the models as their users see them: links to blobs
//	claims/            the blobs that a running fetch needs, before there is an entry
//	snapshots/NAME/    snapshots of processes, within the same limit
//	compiled/NAME/     what a function's server has compiled, within the same limit
//	locks/             files for flock(2); the kernel drops a lock if its process dies
//
// Files that a member of the folder's group has put there are verified at each use. The package never runs code from a model, follows a
// name out of the model's folder, or stores or prints credentials.
package fetch
