// Package store keeps clients' data at the front door: files, and jobs, which are batches, requests that are answered
// later, and responses. It keeps them in [Objects]: a folder of one process, or an S3 bucket of any number.
//
// The package knows nothing of HTTP or models, and decides nothing about order. All data is its owner's: for others it
// does not exist (ErrNotFound). Once a method has returned nil, its changes are durable. After ErrUnavailable a change
// may or may not have happened.
//
//	format                    the version of this layout
//	files/OWNER/ID            records: JSON, with a unique number for each write
//	jobs/OWNER/ID
//	data/OWNER/ID/NAME        bodies, in pieces; what is written under a claim has a unique name
//	open/OWNER/ID/HINT        hints about unfinished jobs: "EPOCH.MEMBER" for each claim, "0." before the first, and "cancel"
//	members/MEMBER            a beat of each user of a shared store
//
// OWNER is the owner with other characters than letters, digits, _ and - escaped; a long one is its SHA-256.
//
// Only records count. Each is changed by a read and a conditional write that requires the state that was read, so
// concurrent changes have one winner. A body is written before the record that names it, under a unique name; a body
// without a record is deleted a day later. Hints are written beside records, so that one list per poll tells every
// member what to do. They may be late or wrong; the record decides.
//
// The life of one job:
//
//  1. [Store.New] writes the body, the hint, and the record. A hint without a record is deleted an hour later.
//  2. [Store.Watch] lists the hints, and reports jobs without a holder, or whose holder's beat has not changed for
//     [Config.Lease]. The observer's clock measures how long a beat did not change; it is never compared with another
//     machine's.
//  3. [Store.Claim] writes the record with the next epoch and its member. The conditional writes of an earlier holder
//     fail from then on.
//  4. [Claim.Record] writes results of a batch as a piece, or appended to the last piece if that is small. Then it
//     writes the record, with a bit for each line done and the names of the pieces. This takes two or three requests
//     for any number of results, and a batch has few pieces.
//  5. [Claim.Finish] seals a batch with its pieces, writes the records of the output files, and ends the batch. Nothing
//     is copied. A member that takes over a sealed batch repeats the rest, with the same outcome. [Claim.Answer] and
//     [Store.KeepResponse] write the answer of a request, and end it.
//  6. It is deleted by its client or once it has expired ([Store.Sweep]).
//
// In a folder the process is the only member: it has no beat, finds all claims of earlier ones free, and deletes at
// the start what they left without a record.
//
// A conditional write whose answer is lost may have happened: the record is read again, and its number tells. If that
// is still unknown after a while, the error is ErrUnavailable, and the claim's next call finds out.
//
// The owners' use is counted when the store is opened, and again every [Config.Survey]; in between each member knows
// only its own changes. So limits are exact except for the recent additions of others.
//
// [Store.Watch] is called once; it starts nothing that outlives it. Everything else is safe for concurrent use, except
// that a claim and an upload belong to one goroutine.
package store
