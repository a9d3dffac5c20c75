// Package flight is a flight recorder: it records what an autoscaler takes in and decides, to be replayed on another
// machine. What is in a record is package autoscaler's.
//
// A record is a folder of segments, each a file: lines of JSON, compressed with gzip. A file may hold several segments,
// one after the other. The lines of a segment:
//
//	{"begin":{…}}               the Header
//	{"state":{…}}               the whole state, so that the segment can be replayed alone
//	{"at":"…"}                  a Round begins
//	{"kind":"…","value":{…}}    one of its inputs or decisions
//	{"sum":123}                 the CRC-32C of all lines before that are no sums
//	{"end":{…}}                 why it ended
//
// The owner of the state asks whether a segment must begin ([Recorder.Due], [Recorder.Begin]), and adds inputs and
// decisions ([Recorder.Round], [Recorder.Add], [Recorder.End]), from one goroutine. [Recorder.Run] writes them once a
// second with a sum, from another. Lines before a sum can be read also where the rest is damaged. The oldest files go
// while all are more than [Config].MostBytes.
//
// Nothing waits for the disk: if there is too much to write, or the disk is full or too slow, the segment ends with the
// reason, and another begins later. Sums detect damage, not forgery.
package flight
