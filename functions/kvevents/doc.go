// Package kvevents follows the KV cache events of vLLM and SGLang: which blocks of their prefix caches are stored, removed, or all cleared. It
// knows how many tokens a cache has at any moment; it keeps no tokens, though the events carry those of prompts.
//
// What it does not do is say which requests' blocks those are: a server hashes tokens, and whoever routes requests knows
// the bytes that clients write.
//
// The life of one [Follower]:
//
//  1. It connects to where the server publishes, a ZeroMQ socket (ZMTP 3), as soon as that is there, and tries again when it is lost.
//  2. Each message is a batch of events (MessagePack), numbered. They change a [Cache].
//  3. A server's cache is empty at the beginning of its life, when the numbers begin with 0. Where a number is missing, the cache is not known until
//     the server says that it has cleared it, as it does for each sleep.
//
// A batch that can't be read counts as missing. Events of vLLM 0.9 to 0.32 are read, which differ in shape, and fields that are not known are left alone.
package kvevents
