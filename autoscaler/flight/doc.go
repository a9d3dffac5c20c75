// Package flight records what an autoscaler takes in and decides, so that a day of it can be replayed on another machine: a flight
// recorder. It knows how a record is written, bounded and read. What is in it, and what a replay does with that, is package autoscaler's.
//
// A record is a folder of segments, each a file: lines of JSON, compressed with gzip (zcat prints them). A file may hold several segments,
// one after the other. The lines of a segment:
//
//	{"begin":{…}}               the Header
//	{"state":{…}}               the whole state, so that the segment can be replayed alone
//	{"at":"…"}                  a Round begins
//	{"kind":"…","value":{…}}    one of its inputs or decisions
//	{"sum":123}                 the CRC-32C of all lines before that are no sums
//	{"end":{…}}                 why it ended
//
// The life of a round:
//
//  1. The owner of the state asks whether a segment must begin ([Recorder.Due]); if so it passes its state ([Recorder.Begin]).
//  2. It adds inputs and decisions ([Recorder.Round], [Recorder.Add], [Recorder.End]), which become lines in memory.
//  3. [Recorder.Run] takes the lines once a second, adds a sum, compresses and writes them. Lines before a sum can be read also where the
//     rest is missing or damaged.
//  4. A segment ends when it has its share of [Config].MostBytes, or after [Config].MostAge. The oldest files go while all are more than MostBytes.
//
// The bytes (MostBytes) and the share of a core are bounded. If there is more to write, or the disk is full or too
// slow, the segment ends with the reason, and another begins later. Nothing waits for the disk.
//
// Sums detect damage, not forgery.
//
// The methods named in 1 and 2 are for one goroutine, Run for another; [Recorder.Copy] may be called by any.
package flight
