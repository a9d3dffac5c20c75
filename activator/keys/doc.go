// Package keys identifies a client by its key, and decides which models it may use, and how much. It is safe for
// concurrent use.
//
// Of a key, a random text, only the SHA-256 sum is kept. It belongs to a tenant, under which requests are
// scheduled, counted and cached. A file (package config/apikey) declares keys, and OpenID Connect issuers whose
// tokens count too. A tenant of an issuer differs from others of its name, unless the file declares them the same.
//
//  1. [Store.Authenticate] finds the [Account]. An unknown, expired or missing key is a 401.
//  2. [Account.Rights] checks the model and the claimed priority: a 403.
//  3. [Account.Admit] charges the request, with an estimate of its tokens, to the limits: a 429. A limit is a
//     bucket that holds the allowance of a minute and fills evenly.
//  4. [Charge.Settle] replaces the estimate; [Charge.End] ends the request.
//  5. [Store.Load] applies a new file. Accounts that are still declared keep their use; the others' requests end
//     ([Account.Revoked]).
package keys
