// Package memo caches the answers of searches for as long as the same searches would give the same answers.
//
// Searches look at cells; for a plan they are the nodes of a cluster. Each cell has a fingerprint: the sum of the hashes of
// everything in it ([Cells]). To change content, subtract the old hash and add the new one. So restored content has its old
// fingerprint again, and the order of changes does not matter.
//
// One search:
//
//  1. [Memo.Find] looks up a key. The cached answer is valid if its version is the same, its time is not over, the cells that its
//     search has read have the same fingerprints, and the best places are the same.
//  2. Otherwise the search runs. It reports the cells it reads ([Memo.Read]) and how long its comparisons with the present time
//     hold ([Memo.HoldsUntil], [Memo.Uncacheable]), and asks for the best places of all cells ([Memo.Best]).
//  3. The list of best places is updated from the changed cells, and rebuilt only if too few of its places are left.
//  4. Keys that were not looked up between two calls of [Memo.Sweep] are dropped.
//
// Everything a search reads that is in no cell must be in its version. Otherwise only two contents of a cell with the same 64-bit
// hash can make an answer wrong.
//
// Nothing here is safe for concurrent use.
package memo
