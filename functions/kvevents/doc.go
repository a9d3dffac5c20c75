// Package kvevents follows the KV cache events of vLLM and SGLang: blocks of their prefix caches are stored, removed, or all cleared.
// It knows how many tokens a cache has at any moment. It keeps no tokens, although the events carry those of prompts.
//
// It does not tell whose requests the blocks belong to: a server hashes tokens, while a router knows the bytes that clients send.
//
// The life of one [Follower]:
//
//  1. It connects to the server's ZeroMQ socket (ZMTP 3) as soon as that exists, and again after a broken connection.
//  2. Each message is a numbered batch of events (MessagePack). They change a [Cache].
//  3. A server's cache is empty when it starts, with batch 0. After a missing number the cache is unknown until the server reports that
//     it has cleared it, as it does for each sleep.
//
// A batch that can't be decoded counts as missing. The events of vLLM 0.9 to 0.32, which differ in shape, are supported, and unknown
// fields are skipped.
package kvevents
