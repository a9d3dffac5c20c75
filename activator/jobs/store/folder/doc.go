// Package folder is a store in one folder, for one process: a database of records (bbolt), with the bodies as files
// beside it.
//
//	DIR/store.db        records: files, batches, finished lines of batches, requests
//	DIR/files/ID        bodies of files, and of batches' outputs
//	DIR/parts/ID.out    output of a batch that runs; ID.err for its errors
//	DIR/later/ID.in     body of a request that is answered later; ID.EPOCH.out for its answer
//	DIR/responses/ID    inputs and answers of responses
//	DIR/tmp             unfinished files; emptied when the store is opened
//
// Once a method has returned nil, its changes are on disk: they survive the end of the process at any point, and of
// the machine if its disk keeps what it has acknowledged. The next [Open] removes half-written data.
//
// It starts no goroutines. Package store has the contract; for a batch it is implemented as follows:
//
// 1. [Store.Claim] raises the epoch of the record.
//  2. [Claim.Record] adds results in one transaction: it checks the epoch, writes them after the committed ends of
//     the parts, syncs these, marks the lines as done and moves the ends. Data that a killed process wrote in an
//     unfinished transaction is overwritten.
//  3. [Claim.Finish] turns the parts into files, in one transaction: it checks the epoch, renames them and creates
//     the records.
//
// A Store is safe for concurrent use. A claim belongs to one goroutine at a time.
package folder
