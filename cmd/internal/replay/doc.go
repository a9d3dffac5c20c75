// Package replay answers questions about a flight record (package autoscaler/flight): whether this program decides like the recorded
// one, what it would have answered at a time, and what another policy would have cost. It changes nothing and uses no server.
//
//  1. [Open] reads the segments of a file or a folder, and says which of them this program can't replay, and why.
//  2. [Record.Check] replays each segment separately, beginning with its state, and compares each decision byte by byte.
//  3. [Record.At] replays the segment that contains a time until then, and returns the autoscaler in that state.
//  4. [Record.WhatIf] collects requests and properties of models during a replay (traffic.go); the simulator runs other policies on
//     that (policy.go).
package replay
