// Package bucket is a store in an S3 bucket, of as many activators as are wanted. The service has to write under conditions (If-None-Match: * to make an
// object, If-Match to replace one): [Open] finds out whether it does.
//
//	PREFIX/format                     which version of this layout it is
//	PREFIX/members/MEMBER             a beat of each user of the store
//	PREFIX/files/OWNER/ID             records: JSON, each with a number of its own for every time that it is written
//	PREFIX/batches/OWNER/ID
//	PREFIX/later/OWNER/ID
//	PREFIX/responses/OWNER/ID
//	PREFIX/data/OWNER/ID/NAME         bodies, in pieces: those of a batch's results are made under its claims, and are no others'
//	PREFIX/open/batch/OWNER/ID/HINT   what has not ended, and who has it: "EPOCH.MEMBER" for each claim, "0." before the first, and "cancel"
//	PREFIX/open/later/OWNER/ID/HINT
//
// OWNER is the owner with other characters than letters, digits, _ and - escaped; a long one is its SHA-256.
//
// Only records count. Each is changed by a read and a write on the condition that it is what was read: so a change has one winner. A body
// is written before the record that names it, under a name that nobody else writes; one that no record names is deleted a day later.
// Hints are written beside records, so that one list a poll tells every member what there is to do: they may be late or wrong, and the record decides.
//
// The life of one batch:
//
//  1. [Store.NewBatch] writes the hint, then the record. A hint without a record is deleted an hour later.
//  2. [Store.Watch] lists the hints, and tells of those that nobody has, or that a member has whose beat has not changed for [Config.Lease]: by the clock of who
//     looks, which only measures how long something did not change. No time of another machine is compared with it.
//  3. [Store.Claim] writes the record with the next epoch and its member. Who had it before writes on the condition of a record that is not there any more.
//  4. [Claim.Record] writes the results as a piece, or the last piece with them behind if that is small, and then the record: with the lines that are done as bits, and the
//     names of the pieces. It is two or three requests for as many results as there are, and a batch has few pieces.
//  5. [Claim.Finish] seals the record with its pieces, writes the records of the files that they are, and ends it. Nothing is copied. Who takes over
//     a sealed batch does the rest again, with the same outcome.
//
// A response that takes the place of its request is first named in the request's record, under the claim: from then on it is there.
//
// A write whose answer does not come may have happened: the record is read again, and its number tells. What can't be found out within [Config.Timeout] is
// [store.ErrUnavailable], and is found out by the next call.
//
// What owners have is counted when the store is opened, and again every [Config.Survey]: in between each member knows of its own only. So limits hold but for
// what the others have added meanwhile.
//
// [Store.Watch] is called once; it starts nothing that outlives it. All else is for many goroutines; a claim and an upload belong to one.
package bucket
