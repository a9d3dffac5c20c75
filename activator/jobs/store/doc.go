// Package store keeps clients' data at the front door: files, and jobs, which are batches, requests that are answered
// later, and responses. It keeps them in [Objects]: a folder of one process, or an S3 bucket of any number.
//
// Others than the owner get ErrNotFound. Once a method has returned nil, its changes are durable. After ErrUnavailable a
// change may or may not have happened. All is safe for concurrent use, except a claim and an upload.
//
//	format                    the version of this layout
//	files/OWNER/ID            records: JSON, with a unique number for each write
//	jobs/OWNER/ID
//	data/OWNER/ID/NAME        bodies, in pieces; what is written under a claim has a unique name
//	open/OWNER/ID/HINT        hints about unfinished jobs: "EPOCH.MEMBER" for each claim, "0." before the first, and "cancel"
//	members/MEMBER            a beat of each user of a shared store
//
// Only records count; conditional writes change them. A body is written before the record that names it. Hints let one list
// per poll tell every member what to do; they may be late or wrong.
//
// [Store.Claim] writes the record with the next epoch, so the writes of an earlier holder fail. [Store.Watch] reports
// jobs without a holder, or whose holder's beat has not changed for [Config.Lease] by the observer's clock.
// [Claim.Finish] seals a batch before it ends it: who takes over a sealed batch repeats the rest, with the same outcome.
package store
