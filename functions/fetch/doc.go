// Package fetch downloads a model from the source that its reference names into a
// cache that several processes share. A model appears there only when it is whole.
//
// A reference is one of
//
//	/models/chat.gguf, ./chat.gguf      a file or a folder, used in place
//	file:///models/chat.gguf            the same
//	https://host/path/chat.gguf         a file; http:// as well
//	hf://org/name[@rev][/path]          a repository of a Hugging Face hub, a folder or a file of it
//	oci://registry/repository[:tag]     an OCI artifact or image; @sha256:… as well
//	s3://bucket/key-or-prefix           an object, or all below a prefix
//	ollama://[host/][user/]name[:tag]   a model of an Ollama registry
//
// A reference to one file may end in #sha256=HEX (a path also in ?sha256=HEX), the
// required digest of its content. References to several files may end in
// ?include=*.safetensors,*.json&exclude=*.md; a star matches slashes too. Without
// patterns, a hub's repository with safetensors is fetched without copies of the
// weights in other formats (pytorch_model.bin, onnx/, original/ and the like).
// ?quant=Q8_0 means the one GGUF model of a hub's repository with that quantization,
// and quant=default means Q4_K_M or the only model. It is the default where a
// repository has several GGUF models and no other weights. A reference to one file of a split
// model means all of its files.
//
// The life of a [Cache.Fetch]:
//
//  1. A finished reference whose content cannot change (a commit, a digest, a
//     checksum) is returned at once, after the sizes of its files are checked.
//  2. The first caller locks the reference; the others wait and see its progress.
//  3. The source is asked for the reference's present content: names, sizes, digests.
//     If the cache has that, it is used. If the source does not answer, the cached
//     content is used, if there is any.
//  4. The least recently used models and folders are evicted to make room, except
//     those in use.
//     If there is still not enough, the fetch fails before the first byte.
//  5. Missing files are downloaded, four at once, each into a part that survives a
//     crash and is resumed. Each is checked against the source's metadata (SHA-256,
//     a git object's id, MD5, size) and becomes a blob, named by its SHA-256.
//  6. A tree of links to the blobs is built and renamed into place, then the entry is
//     written that marks the reference as finished. No name ever means half a model.
//
// A model stays in place until [Model.Release]: its user holds a shared lock,
// which the kernel drops if the user dies. All locks are flock(2), so the folder
// needs a file system that has them.
//
// The folder:
//
//	blobs/sha256/HEX   files by content, read-only
//	parts/             partial downloads, with their server's metadata
//	entries/           one JSON file for each finished reference
//	trees/HEX/         the models as their users see them: links to blobs
//	claims/            the blobs that a running fetch needs, before there is an entry
//	snapshots/NAME/    snapshots of processes, within the same limit; package functions makes them
//	compiled/NAME/     what a function's server has compiled, within the same limit
//	locks/
//
// Users who do not trust one another may share the folder: if others may write to it,
// each has a cache of its own in user-UID/. A file that a member of the folder's group
// has put there is verified at each use. An archive may unpack to a bounded multiple of
// its size, and must not hold sparse files.
//
// The package never runs code from a model, follows a name out of the model's folder,
// or stores or prints credentials. It does not guess either: a name that has no scheme
// and is no path is left to the runtime ([Local]).
//
// A [Cache] is safe for many goroutines, and its folder for many processes.
package fetch
