// Package flight records what an autoscaler takes in and decides, so that a day of it can be replayed on another machine: a flight
// recorder. It knows how a record is written, bounded and read. What is in it, and what a replay does with that, is package autoscaler's.
//
// A record is a folder of segments, each a file. A segment has a header, the whole state, so that it can be
// replayed alone, and rounds: the time, inputs and decisions. A file may hold several segments, one after the other.
//
// The life of a round:
//
//  1. The owner of the state asks whether a segment must begin ([Recorder.Due]); if so it passes its state ([Recorder.Begin]).
//  2. It adds inputs and decisions ([Recorder.Round], [Recorder.Add], [Recorder.End]). encoding/gob encodes each into a
//     buffer in memory.
//  3. [Recorder.Run] takes the buffer once a second, compresses it, and writes it as a chunk with a checksum (segment.go). Chunks
//     before one that is cut or damaged can be read.
//  4. A segment ends when it has its share of [Config].MostBytes, or after [Config].MostAge. The oldest files go while all are more than MostBytes.
//
// [Config] bounds the bytes (MostBytes) and the share of a core (MostShare). If there is more to write, or the disk is full or too
// slow, the segment ends with the reason, and another begins later. Nothing waits for the disk.
//
// Checksums detect damage, not forgery.
//
// The methods named in 1 and 2 are for one goroutine, Run for another; [Recorder.Copy] may be called by any.
package flight
