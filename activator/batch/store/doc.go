// Package store keeps what clients leave at the front door: files, batches, requests that are answered later, and responses. It is one
// folder: a database of records (bbolt), and beside it the bodies as files.
//
//	DIR/store.db        records: files, batches, the lines of batches that are done, requests
//	DIR/files/ID        bodies of files, and of batches' outputs
//	DIR/parts/ID.out    output of a batch that runs; ID.err for its errors
//	DIR/later/ID.in     body of a request that is answered later; ID.EPOCH.out for its answer
//	DIR/responses/ID    what was asked and answered
//	DIR/tmp             what is being written; emptied when the store is opened
//
// What a method has returned nil for is on disk: it survives the end of the process at any point, and of the machine as far as
// its disk keeps what it has acknowledged. What was half written is not there after the next [Open].
//
// The package knows nothing of HTTP and of models. It starts nothing, and decides nothing about order.
//
// The life of one batch:
//
//  1. [Store.NewBatch] takes it in. Its owner finds it by its id; for all others there is none.
//  2. [Store.Claim] gives it to who runs it, with a new epoch: whoever had it before can record nothing any more. The claim knows
//     which lines are done.
//  3. [Claim.Record] adds results, in one transaction: it checks the epoch, writes them behind the committed ends of the parts, syncs these, marks
//     the lines as done and moves the ends. So a line has one result, or none: what a killed process has written without
//     the end of the transaction is overwritten.
//  4. [Claim.Finish] makes files of the parts, in one transaction: it checks the epoch, renames them and makes the records. Their ids
//     were chosen with the batch's, so that it can be done again after a kill in between.
//
// A request that is answered later is claimed and finished in the same way ([Store.ClaimLater], [Store.FinishLater]).
//
// A Store is safe for many goroutines. A claim belongs to one at a time.
package store
