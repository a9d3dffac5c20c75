// Package folder is a store in one folder, of one process: a database of records (bbolt), and beside it the bodies as files.
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
// It starts nothing. The contract is that of package store; how it is fulfilled for a batch:
//
//  1. [Store.Claim] raises the epoch of the record.
//  2. [Claim.Record] adds results, in one transaction: it checks the epoch, writes them behind the committed ends of the parts, syncs these, marks
//     the lines as done and moves the ends. What a killed process has written without the end of the transaction is overwritten.
//  3. [Claim.Finish] makes files of the parts, in one transaction: it checks the epoch, renames them and makes the records.
//
// A Store is safe for many goroutines. A claim belongs to one at a time.
package folder
