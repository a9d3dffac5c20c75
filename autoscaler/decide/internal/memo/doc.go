// Package memo keeps the answers of searches for as long as the same searches would give the same answers.
//
// What is searched consists of cells; for a plan they are the nodes of a cluster. Each cell has a fingerprint: the sum
// of the hashes of everything in it ([Cells]). To change content is to take the old hash out and put the new one in, so that
// content which is put back has its old fingerprint again, and the order of changes does not matter.
//
// One search:
//
//  1. [Memo.Find] is asked for a key. An answer that is known stands if the version of its question is the same, its time is not
//     over, the cells that its search has read have the fingerprints that they had then, and the best places are the same.
//  2. Otherwise the search runs. It says which cells it reads ([Memo.Read]), for how long what it compares with the present holds
//     ([Memo.HoldsUntil], [Memo.Uncacheable]), and asks for the best places of all cells ([Memo.Best]).
//  3. A list of best places is brought up to date by the cells that have changed, and made from nothing only where too
//     few of its places are left.
//  4. Keys that were not asked for between two calls of [Memo.Sweep] are forgotten.
//
// A search that reads something which is in no cell has to have it in its version. Nothing else can make an answer wrong, but for
// two contents of a cell with the same 64-bit hash.
//
// All of it is for one goroutine.
package memo
