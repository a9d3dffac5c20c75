// Package fetch brings a model to this machine: from where its reference says,
// into a cache that several processes share, and only whole.
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
// A reference to one file may end in #sha256=HEX (a path also in ?sha256=HEX): its
// content must be that. References to several files may end in
// ?include=*.safetensors,*.json&exclude=*.md; a star stands for slashes too. Without
// them, a hub's repository that has safetensors comes without the same weights in
// other formats (pytorch_model.bin, onnx/, original/ and the like). ?quant=Q8_0 means
// the one GGUF model of a hub's repository that has that quantization, and quant=default
// Q4_K_M or the only model. A model that is split into files is one: a reference to one
// of them means all.
//
// The life of a [Cache.Fetch]:
//
//  1. A finished reference whose content cannot change (a commit, a digest, a
//     checksum) is returned as it is, once the sizes of its files are checked.
//  2. Who comes first locks the reference; the others wait and see its progress.
//  3. The source is asked what the reference means now: names, sizes, digests. Is
//     that what the cache has, it is used. A source that does not answer is no
//     reason to fail either, if the cache has what it said last.
//  4. Room is made: models that were not used for longest are evicted, never one
//     that is in use. Is there not enough, the fetch fails before the first byte.
//  5. Files that the cache lacks are downloaded, four at once, each into a part
//     that outlives a crash and is resumed. Each is checked against what the source
//     says of it (SHA-256, a git object's id, MD5, size) and becomes a blob, named
//     by its SHA-256.
//  6. A tree of links to the blobs is put up and given its name, then the entry
//     that says that the reference is finished. Nothing names half a model.
//
// A model stays in place until [Model.Release]: its user holds a shared lock,
// which the kernel drops if the user dies. All locks are flock(2), so the folder
// needs a file system that has them.
//
// The folder:
//
//	blobs/sha256/HEX   files by content, read-only
//	parts/             downloads on their way, with what their server said of them
//	entries/           one JSON file for each finished reference
//	trees/HEX/         the models as their users see them: links to blobs
//	claims/            the blobs that a running fetch needs, before there is an entry
//	locks/
//
// Users may share the folder, and need not trust one another: where others may
// write to it, each has a cache of its own in user-UID/. A file that a member of the
// folder's group has put there is checked at each use. An archive may unpack to a
// bounded multiple of its size, and holds no sparse files.
//
// It refuses to run code from a model, to follow a name out of the model's folder,
// to write credentials down or print them, and to guess: a name without a scheme
// that is no path is the runtime's own business ([Local]).
//
// A [Cache] is safe for many goroutines, and its folder for many processes.
package fetch
