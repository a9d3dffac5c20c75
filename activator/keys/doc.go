// Package keys says who a client is by the key that it shows, what it may use, and how much of it.
//
// A key is a random text, of which only the SHA-256 sum is kept. It belongs to a tenant: the name
// under which the client's requests are scheduled, counted and cached. A file (package config/apikey) declares
// keys; in a cluster it is that of a Secret. A client may show a token of an OpenID Connect
// issuer instead, where the file names that issuer: its tenant is another than any key's, and than any other issuer's, that has the same
// name, unless the file says that they are one.
//
// The life of one request's key:
//
//  1. [Store.Authenticate] finds the [Account] of the key in the request's header. An unknown, an
//     expired or a missing one is a 401.
//  2. [Account.Allows] says whether it may use a model, and [Account.Claim] whether it may have the
//     priority that the request claims; else a 403.
//  3. [Account.Admit] charges the request, and an estimate of its tokens, to the account's limits, or
//     says when to come back, with a 429. A limit is a bucket that holds what one minute allows, and
//     fills evenly.
//  4. [Charge.Settle] replaces the estimate with what was used; [Charge.End] ends the request.
//  5. [Store.Load] takes a new file. Accounts that are still declared keep what they have used; the
//     context of one that is not ends ([Account.Revoked]), and with it all of its requests.
//
// The package decides nothing about the order of requests, and writes no answers. It is safe for
// concurrent use.
package keys
