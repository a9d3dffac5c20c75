// Package shim is a small process between a function and its runtime, as the runtime's parent. It cleans up after a function that is
// killed, and outlives each of several functions that share a runtime (package leader).
//
// The life of a shim:
//
//  1. A function starts it ([Open]) with one end of a socket pair as its standard input: there is no moment at which the function could
//     die unnoticed.
//  2. [Run] adopts (process.Adopt) and, if a path was given, listens there for further functions of the same user, which wait for their
//     turn ([Attend]).
//  3. On the leader's call it starts the runtime, passes its output on and reports its end. It keeps the leader's note for the next one.
//  4. When the last connection closes, for any reason, the shim kills the runtime with all its descendants, and ends. If others may join,
//     it waits half a second for them first.
//
// If the shim itself is killed, the kernel kills the runtime. The function notices, kills the rest, its own adopted children and all that
// bear the shim's mark in their environment, and creates a new shim at the next start.
//
// A shim refuses connections of other users, a second runtime at a time, and every signal that can be refused.
//
// The wire protocol is JSON messages, one after the other, in both directions, see message. One with an id is a call or its answer, the
// others are events.
package shim
