// Package shim is a small process between a function and its runtime, as the
// runtime's parent, for two reasons:
//
//   - A function that is killed can't clean up. If no parent process does (see
//     package process), descendants of its runtime would live on. A shim outlives
//     the function for as long as the cleanup takes.
//   - If several functions of one host share a runtime (package leader), its parent
//     must outlive each of them.
//
// The life of a shim:
//
//  1. A function starts it ([Open]) with one end of a socket pair as its standard
//     input. That is the first connection: there is no moment at which the
//     function could die unnoticed.
//  2. [Run] adopts (process.Adopt) and, if a path was given, listens there for
//     further functions of the same user: those that wait for their turn ([Attend]).
//  3. On the leader's call it starts the runtime, passes its output on and
//     reports its end. It keeps the leader's note for the next one.
//  4. When the last connection closes, for any reason, the shim kills the runtime
//     with all its descendants, and ends. If others may join, it waits half a second
//     for them first.
//
// If the shim itself is killed, the kernel kills the runtime. The function notices
// that its connection has ended and kills the rest: the processes that became its own
// children, since it adopts too, and all that bear the shim's mark in their
// environment. The runtime has then ended, and the next start creates a new shim.
//
// A shim refuses connections of other users, a second runtime at a time, and every
// signal that can be refused: it ends by step 4.
//
// The wire protocol: JSON messages, one after the other, in both directions. A
// message with an id is a call or its answer, the
// others are events. See message.
package shim
