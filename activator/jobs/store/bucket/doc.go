// Package bucket is a store in an S3 bucket, for any number of activators. The service must support conditional
// writes (If-None-Match: * to create an object, If-Match to replace one): [Open] checks that.
//
//	PREFIX/format                     the version of this layout
//	PREFIX/members/MEMBER             a beat of each user of the store
//	PREFIX/files/OWNER/ID             records: JSON, with a unique number for each write
//	PREFIX/batches/OWNER/ID
//	PREFIX/later/OWNER/ID
//	PREFIX/responses/OWNER/ID
//	PREFIX/data/OWNER/ID/NAME         bodies, in pieces; a batch's results are written under its claims, under unique names
//	PREFIX/open/batch/OWNER/ID/HINT   hints about unfinished work: "EPOCH.MEMBER" for each claim, "0." before the first, and "cancel"
//	PREFIX/open/later/OWNER/ID/HINT
//
// OWNER is the owner with other characters than letters, digits, _ and - escaped; a long one is its SHA-256.
//
// Only records count. Each is changed by a read and a conditional write that requires the state that was read, so
// concurrent changes have one winner. A body is written before the record that names it, under a unique name; a body
// without a record is deleted a day later. Hints are written beside records, so that one list per poll tells every
// member what to do. They may be late or wrong; the record decides.
//
// The life of one batch:
//
// 1. [Store.NewBatch] writes the hint, then the record. A hint without a record is deleted an hour later.
//  2. [Store.Watch] lists the hints, and reports batches without a holder, or whose holder's beat has not changed
//     for [Config.Lease]. The observer's clock measures how long a beat did not change; it is never compared with
//     another machine's.
//  3. [Store.Claim] writes the record with the next epoch and its member. The conditional writes of an earlier
//     holder fail from then on.
//  4. [Claim.Record] writes the results as a piece, or appended to the last piece if that is small. Then it writes
//     the record, with a bit for each line done and the names of the pieces. This takes two or three requests for
//     any number of results, and a batch has few pieces.
//  5. [Claim.Finish] seals the record with its pieces, writes the records of the output files, and ends the batch.
//     Nothing is copied. A member that takes over a sealed batch repeats the rest, with the same outcome.
//
// A response that replaces its request is first added to the request's record, under the claim: from then on it
// exists.
//
// A write without an answer may have happened: the record is read again, and its number tells. If that is still
// unknown after [Config.Timeout], the error is [store.ErrUnavailable], and the next call finds out.
//
// The owners' use is counted when the store is opened, and again every [Config.Survey]; in between each member knows
// only its own changes. So limits are exact except for the recent additions of others.
//
// [Store.Watch] is called once; it starts nothing that outlives it. Everything else is safe for concurrent use,
// except that a claim and an upload belong to one goroutine.
package bucket
