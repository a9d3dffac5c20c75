// Package keys identifies a client by its key, and decides which models the client may use, and how much.
//
// A key is a random text, of which only the SHA-256 sum is kept. It belongs to a tenant: the name under which the
// client's requests are scheduled, counted and cached. A file (package config/apikey), in a cluster from a Secret,
// declares keys. A client may present a token of an OpenID Connect issuer that the file names instead. Its tenant
// differs from a key's or another issuer's tenant of the same name, unless the file declares them the same.
//
// The life of one request's key:
//
//  1. [Store.Authenticate] finds the [Account] of the key in the request's header. An unknown, expired or missing key
//     is a 401.
//  2. [Account.Allows] checks the model, and [Account.Claim] the priority that the request claims; a failed check is
//     a 403.
//  3. [Account.Admit] charges the request, and an estimate of its tokens, to the account's limits, or returns a 429
//     with the time to retry. A limit is a bucket that holds the allowance of one minute, and fills evenly.
//  4. [Charge.Settle] replaces the estimate with the actual use; [Charge.End] ends the request.
//  5. [Store.Load] applies a new file. Accounts that are still declared keep their use. The context of one that is
//     not ends ([Account.Revoked]), and with it all of its requests.
//
// The package does not order requests, and writes no answers. It is safe for concurrent use.
package keys
