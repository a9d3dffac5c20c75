// Package s3 speaks to Amazon S3 and to services that speak like it: what Rouse needs of it, signed by AWS's own library. [Service] is where
// a service is and whose credentials are used; [Bucket] writes under conditions, reads, lists and deletes.
//
// It keeps nothing, starts nothing, and tries each request once: whoever asks knows whether it may be asked again. It logs nothing; errors name no
// secret. An answer whose meaning is known is [ErrNotFound] or [ErrCondition]; all others are a *[StatusError], or what the connection failed with.
//
// The life of one request: its body is hashed, it is signed with the credentials that are valid now (a file with them is read again), and sent; an answer
// that is not the expected one is read up to 64 KiB for the service's own code.
//
// All of it is safe for many goroutines.
package s3
