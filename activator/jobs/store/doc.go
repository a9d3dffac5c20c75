// Package store defines the store of clients' data at the front door: files, batches, later requests, and responses.
// There are two implementations: a folder of one process (package folder), and an S3 bucket of any number (package
// bucket). Both pass the tests of package storetest. Package place opens the configured one.
//
// The package knows nothing of HTTP or models, and decides nothing about order.
//
// The life of one batch:
//
// 1. [Batches.NewBatch] stores it. Its owner finds it by its id; for others it does not exist.
//  2. [Store.Watch] reports it to the store's users.
//  3. [Batches.Claim] gives it to one of them, with a new epoch: an earlier claim can no longer record anything. The
//     claim knows which lines are done.
//  4. [Claim.Record] adds results, all or none, under the claim's epoch. So a line has at most one result.
//  5. [Claim.Finish] creates files of the results. Their ids were chosen with the batch's, so that it can be
//     repeated after a kill in between.
//
// A later request is claimed and finished in the same way ([Laters.ClaimLater], [Laters.FinishLater]), or a response
// replaces it ([Responses.KeepResponse]).
package store
