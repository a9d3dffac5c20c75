// Package leader lets several functions of one host, its workers, run one runtime
// between them: one leads, the others pass every request on to it, and when the
// leader dies another one goes on with the same runtime.
//
// A folder that only their user can enter is all that they share:
//
//	leader.lock   locked by the leader; the kernel releases it with the process
//	leader.sock   where the leader takes requests
//	shim.sock   where the shim does, the runtime's parent (package shim)
//	runs          what all of them run; locked by each of them
//	stops         how often the instance was stopped for good
//
// The life of a worker ([Run]):
//
//  1. Its door is open from the start. It knows nothing of who may do what: it
//     passes requests on with all their headers, and the leader decides.
//  2. It tries for the lock. Who fails follows: it attends at the shim, by which
//     the shim knows that the runtime is still wanted, and tries again, at once
//     when another worker has gone.
//  3. Who has the lock leads: it joins the shim or starts one, opens
//     leader.sock and calls [Config.Lead], which adopts the runtime that is there.
//     Its own door now calls the handler directly ([Leadership.Serve]).
//  4. Lead returns, and with it Run. If the instance was stopped for good, the
//     shim has told the others, and they end too, as does who finds, with the
//     lock in hand, that there was a stop since it began.
//
// A request that is passed on, body and all in memory: 1. no leader, or one that
// dies before the first byte of its answer: it is sent again, to the next leader,
// for as long as [Config.Wait]; 2. a leader that dies later: a stream ends with an
// error event, another answer with a broken connection; 3. the client leaves: the
// leader sees that.
//
// What it refuses: to share a folder with other users or with workers that run
// something else ([Config.Runs]), and to lead without a
// shim, as nobody could take the runtime over then.
package leader
