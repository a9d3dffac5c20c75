// Package leader lets several functions of one host, its workers, share one runtime. One leads, and the others pass every request on to
// it. When the leader dies another worker takes over the same runtime.
//
// The workers share only a folder, which only their user can enter:
//
//	leader.lock   locked by the leader; the kernel releases it with the process
//	leader.sock   receives requests for the leader
//	shim.sock     the socket of the shim, the runtime's parent (package shim)
//	runs          identifies what all of them run; locked by each of them
//	stops         how often the instance was stopped for good
//
// The life of a worker ([Run]):
//
//  1. Its door is open from the start. It passes requests on with all their headers; the leader decides about access.
//  2. If it does not get the lock it follows: it stays connected to the shim, which shows that the runtime is still wanted, and tries
//     again, at once when another worker has gone.
//  3. The worker with the lock leads: it joins the shim or starts one, opens leader.sock and calls [Config.Lead], which adopts an
//     existing runtime.
//  4. Lead returns, and with it Run. If the instance was stopped for good, the shim tells the other workers, and they end. A worker also
//     ends if it gets the lock and finds that there was a stop since it began.
//
// A request that is passed on is wholly in memory. If there is no leader, or it dies before the first byte of its answer, the next one
// gets the request, for up to [Config.Wait]. If the leader dies later, a stream ends with an error event, and another answer with a
// broken connection.
package leader
