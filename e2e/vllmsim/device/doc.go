// Package device is the memory of accelerators that do not exist, shared by the processes of one host. A folder holds
// one JSON file for each device.
//
// A process that holds memory is alive as long as it holds a file lock (flock) of its own. So it works between
// containers that share the folder, and a process that is killed leaves nothing behind. Every call takes one lock for
// the folder, and changes files by renaming.
package device
