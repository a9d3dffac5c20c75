// Package process starts a child process so that none of its processes outlives us, and ends it with all its descendants.
//
// The life of a child:
//
//  1. [Start] forks it in its own process group and, on Linux, session. The kernel kills it when we die, unless it [Spec.Outlives] us.
//  2. Its output is given line by line to [Spec.Lines].
//  3. It ends by itself, by [Process.Stop] or by [Process.Kill]. The rest of its group is killed before its process ID is released.
//  4. If [Adopt] was called, every other remaining descendant is now a child of ours, and is killed and reaped.
//  5. [Process.Exited] is closed: nothing of the child remains.
//
// If we are killed, the child dies by its death signal, but steps 3 and 4 do not happen. The kernel, if we are process 1 of a container, a
// parent that sweeps ([Adopt]) or a shim (package shim) then ends its descendants. Else they outlive us, and [KillMarked] finds those that
// bear a mark in their environment.
//
// The death signal is bound to the thread that forked. So every child is forked by one goroutine that is locked to its thread and never
// ends.
//
// All functions are safe for many goroutines.
package process
