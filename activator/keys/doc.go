// Package keys identifies a client by its key, and decides which models it may use, and how much. It is safe for
// concurrent use.
//
// A key is a random text, of which only the SHA-256 sum is kept. It belongs to a tenant. A file (package
// config/apikey) declares keys, and OpenID Connect issuers whose tokens count too.
//
//  1. [Store.Authenticate] finds the [Account].
//  2. [Account.Rights] checks the model and the claimed priority.
//  3. [Account.Admit] charges the request and an estimate of its tokens. A limit is a bucket that holds the
//     allowance of a minute.
//  4. [Charge.Settle] replaces the estimate; [Charge.End] ends the request.
//  5. [Store.Load] applies a new file. Requests of removed keys end.
package keys
