// Package device is the memory of accelerators that do not exist, shared by the
// processes of one host.
//
// A folder holds one JSON file for each device, and every process that uses the
// folder sees the same memory:
//
//  1. [Create] makes devices, or [Open] does for indexes that are missing.
//  2. [Open] gives a process its [Client] of the devices that it may see.
//  3. [Client.Resize] asks for an amount on each of them: all or nothing.
//  4. [Client.Close] gives everything back; the kernel does when the process ends.
//
// Who holds memory is alive as long as a file lock (flock) of its own is held:
// by the process, or by a child that was given [Client.File], as the engine
// process of vLLM holds the memory and not its HTTP server. So it works between
// containers that share the folder and not their process numbers, and a process
// that is killed leaves nothing behind. Every call takes one lock for the folder,
// changes files by renaming, and lasts microseconds.
//
// [NvidiaSMI] prints the devices as nvidia-smi does.
package device
