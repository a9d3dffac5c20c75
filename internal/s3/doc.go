// Package s3 is a client for Amazon S3 and compatible services, reduced to Rouse's needs.
//
// It tries each request once: callers know whether a retry is safe. Errors contain no secret; they are [ErrNotFound],
// [ErrCondition], a *[StatusError] for other responses, or the error of the connection. The package is safe for
// concurrent use.
package s3
