// Package flight records what an autoscaler takes in and decides, so that a day of it can be replayed on another machine: a flight
// recorder. It knows how a record is written, bounded and read. What is in it, and what a replay does with that, is package autoscaler's.
//
// A record is a folder of segments, each a file. A segment begins with a header and the whole state, so that it can be
// replayed alone, and goes on with rounds: the time, what was taken in, and what was decided. A file may hold several segments, one after
// the other.
//
// The life of a round:
//
//  1. The owner of the state asks whether a segment is to begin ([Recorder.Due]); if so it gives its state ([Recorder.Begin]).
//  2. It says what it takes in and decides ([Recorder.Round], [Recorder.Add], [Recorder.End]). Each value is encoded by
//     encoding/gob, into a buffer in memory.
//  3. [Recorder.Run] takes the buffer once a second, compresses it, and writes it as a chunk with a checksum (segment.go). What is
//     there before a chunk that is cut or damaged can be read.
//  4. A segment ends when it has its share of [Config].MostBytes, or after [Config].MostAge. The oldest files go while all are more than MostBytes.
//
// What it costs is bounded: the bytes by MostBytes, the time by [Config].MostShare of a core. Where more happens than it may write, or
// the disk is full or too slow, the segment ends, and says why. Another begins when there is room again. Nobody waits for a disk.
//
// Checksums find what was damaged, not what somebody has changed who computes them again.
//
// The methods named in 1 and 2 are for one goroutine, Run for another; [Recorder.Copy] may be called by any.
package flight
