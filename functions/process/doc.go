// Package process starts a child process so that nothing of it outlives us,
// and ends it with all that it started.
//
// The life of a child:
//
//  1. [Start] forks it in a process group of its own; on Linux that is of a session
//     of its own too, and the kernel kills it when we die, however we die, unless it [Spec.Outlives] us.
//  2. Its output is read line by line and given to [Spec.Lines].
//  3. It ends by itself, by [Process.Stop] (SIGTERM, then SIGKILL) or by
//     [Process.Kill]. Before its process id is given back to the kernel, the
//     rest of its group is killed.
//  4. Where [Adopt] was called, every other descendant that is left is now a
//     child of ours, even one that left the group by setsid or that was
//     orphaned long ago: each is killed and waited for, until none is left. One that
//     forks and ends faster than it can be looked for is caught as well.
//  5. [Process.Exited] is closed: nothing of the child remains.
//
// What holds when we get no chance to do steps 3 and 4, because we are killed:
//
//   - the child itself dies by the death signal;
//   - if we are process 1 of a container, the kernel kills all else;
//   - if our parent is a subreaper that sweeps (it called [Adopt] and started
//     us by [Start]), the child's descendants become its children and it kills them;
//   - if the child was started by a shim (package shim), that clears up after us;
//   - else descendants of the child outlive us. No kernel mechanism that needs
//     no privilege prevents it, short of a PID namespace. [KillMarked] finds them
//     again, where the child was started with a mark in its environment.
//
// The death signal is bound to the thread that forked, not to the process:
// every child is forked by one goroutine that is locked to its thread and never
// ends. That goroutine and the reaper of [Adopt] are the only ones in Rouse that
// nobody waits for.
//
// All functions are safe for many goroutines.
package process
