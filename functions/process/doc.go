// Package process starts a child process so that none of its processes outlives us,
// and ends it with all its descendants.
//
// The life of a child:
//
//  1. [Start] forks it in its own process group. On Linux it also has its own session,
//     and the kernel kills it when we die, however we die, unless it [Spec.Outlives] us.
//  2. Its output is read line by line and given to [Spec.Lines].
//  3. It ends by itself, by [Process.Stop] (SIGTERM, then SIGKILL) or by
//     [Process.Kill]. The rest of its group is killed before its process ID is
//     released to the kernel.
//  4. If [Adopt] was called, every other remaining descendant is now a child of ours,
//     even one that left the group by setsid or that was orphaned long ago. Each is
//     killed and reaped, until none is left. That includes one that forks and ends
//     faster than a search of /proc.
//  5. [Process.Exited] is closed: nothing of the child remains.
//
// If we are killed, so that steps 3 and 4 do not happen:
//
//   - the child itself dies by the death signal;
//   - if we are process 1 of a container, the kernel kills all else;
//   - if our parent is a subreaper that sweeps (it called [Adopt] and started
//     us by [Start]), the child's descendants become its children and it kills them;
//   - if the child was started by a shim (package shim), the shim cleans up;
//   - else descendants of the child outlive us. No unprivileged kernel mechanism
//     prevents that, short of a PID namespace. [KillMarked] finds them later, if
//     the child was started with a mark in its environment.
//
// The death signal is bound to the thread that forked, not to the process. So every
// child is forked by one goroutine that is locked to its thread and never ends. That
// goroutine and the reaper of [Adopt] are the only ones in Rouse that nobody waits for.
//
// All functions are safe for many goroutines.
package process
