// Package store is the contract of what keeps what clients leave at the front door: files, batches, requests that are answered later, and
// responses. Two stores fulfil it: a folder of one process (package folder), and an S3 bucket of as many as are wanted (package bucket). Both pass the suite of
// package storetest. Package place opens the one that is asked for.
//
// The package knows nothing of HTTP and of models, and decides nothing about order.
//
// The life of one batch:
//
//  1. [Batches.NewBatch] takes it in. Its owner finds it by its id; for all others there is none.
//  2. [Store.Watch] tells of it who works at what is in the store.
//  3. [Batches.Claim] gives it to one of them, with a new epoch: whoever had it before can record nothing any more. The claim knows
//     which lines are done.
//  4. [Claim.Record] adds results, all of them or none, under the claim's epoch. So a line has one result, or none.
//  5. [Claim.Finish] makes files of the results. Their ids were chosen with the batch's, so that it can be done again after a kill in between.
//
// A request that is answered later is claimed and finished in the same way ([Laters.ClaimLater], [Laters.FinishLater]), or a response takes its place
// ([Responses.KeepResponse]).
package store
