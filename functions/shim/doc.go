// Package shim is a small process that stands between a function and its
// runtime, as the runtime's parent, for two reasons:
//
//   - A function that is killed gets no chance to clear up. If nobody above it
//     does (see package process), what its runtime has started would live on. A
//     shim outlives the function for as long as that takes.
//   - Where several functions of one host share a runtime (package leader), it must
//     outlive each one of them.
//
// The life of a shim:
//
//  1. A function starts it ([Open]) with one end of a socket pair as its standard
//     input. That is the first connection: there is no moment at which the
//     function could die and the shim not know.
//  2. [Run] adopts (process.Adopt) and, where a path was given, listens there for
//     further functions of the same user: those that wait for their turn ([Attend]).
//  3. Told by the one that leads, it starts the runtime, passes its output on and
//     says when it ends. What the leader leaves as a note, it keeps for the next one.
//  4. The last connection closes, however that came about: the shim kills the
//     runtime and all that came of it, and ends. Where others may join, it gives
//     them half a second.
//
// If the shim itself is killed, the kernel kills the runtime; the function
// notices that its connection is gone and kills the rest: those that the kernel
// made its children, as it adopts too, and those that bear the shim's mark in
// their environment, wherever they are. Its runtime has then ended, and the next
// start makes a new shim.
//
// What a shim refuses: connections of other users, a second runtime at a time,
// and every signal that can be refused: it ends by step 4.
//
// The wire: messages of JSON, each with its length before it (four bytes, big
// endian), in both directions. A message with an id is a call or its answer, the
// others are events. See message.
package shim
