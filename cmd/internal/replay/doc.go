// Package replay answers questions about a flight record (package autoscaler/flight): whether this program decides as the one did that
// was recorded, what it would have said at a time, and what another policy would have cost. It changes nothing and asks no server.
//
//  1. [Open] reads the segments of a file or a folder, and says which of them this program can't replay, and why.
//  2. [Record.Check] replays each segment alone, beginning with its state, and compares each decision to the byte.
//  3. [Record.At] replays the segment that a time is in until then, and leaves the autoscaler as it was.
//  4. [Record.Traffic] collects, while it replays, which requests came and what the models are like (traffic.go); the simulator
//     runs other policies on that (policy.go).
package replay
