// Package snapshot keeps a runtime's process on the node's disk, made by CRIU, so that
// the next start need not load the model again. It holds at most one snapshot per
// function. It does not decide when one is made or used; package supervise does.
//
// The life of a [Snapshot], by one goroutine at a time:
//
//  1. [Open] locks the snapshot's folder, which keeps it from eviction and from other
//     instances of the function. It makes a second folder for the instance's sockets.
//  2. [Snapshot.Restore] starts criu if the snapshot is valid, and its last restore was
//     neither a failure nor slower than a usual start. Otherwise there is no child, and a
//     usual start follows.
//  3. [Snapshot.Restored] takes the outcome. After a failure the images are deleted, and
//     no others are made until something of the start has changed.
//  4. [Snapshot.Save] makes the images of a running process, without its connections.
//     The record is written last: a folder without one is not a snapshot.
//  5. [Snapshot.Close] unlocks the folder once the process has ended.
//
// A snapshot is valid for the same command line, environment, program, model files, CRIU
// and boot of the machine. criu stays the parent of the restored process, and the kernel
// kills that with it. So it is below the function as any runtime is, and writes its output
// to the same place.
//
// A snapshot holds everything that the process had in memory, secrets too: the folder has
// the mode 0700, its files 0600.
package snapshot
