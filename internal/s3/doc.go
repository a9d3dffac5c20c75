// Package s3 is a client for Amazon S3 and compatible services, reduced to Rouse's needs; AWS's library signs the
// requests. [Service] has a service's address and credentials; [Bucket] writes conditionally, reads, lists and
// deletes.
//
// It keeps no data, starts no goroutine, and tries each request once: callers know whether a retry is safe. It logs
// nothing; errors contain no secret. Errors are [ErrNotFound], [ErrCondition], a *[StatusError] for other responses,
// or the error of the connection.
//
// The life of one request: its body is hashed. It is signed with the current credentials (a credentials file is read
// each time) and sent. Of an error response up to 64 KiB are read for the service's own code.
//
// The package is safe for concurrent use.
package s3
