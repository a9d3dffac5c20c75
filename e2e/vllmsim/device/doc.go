// Package device is the memory of accelerators that do not exist, shared by the
// processes of one host.
//
// A folder holds one JSON file for each device, and every process that uses the
// folder sees the same memory:
//
//  1. [Create] makes devices, or [Open] does for an index that is missing.
//  2. [Open] gives a process its [Client] of the first device that it may see.
//  3. [Client.Resize] asks for an amount.
//  4. [Client.Close] gives everything back; the kernel does when the process ends.
//
// Who holds memory is alive as long as it holds a file lock (flock) of its own. So
// it works between containers that share the folder and not their process numbers,
// and a process that is killed leaves nothing behind. Every call takes one lock for the folder,
// changes files by renaming, and lasts microseconds.
//
// [NvidiaSMI] prints the devices as nvidia-smi does.
package device
