// Package supervise keeps one runtime in its wanted state: awake, asleep or gone.
// It starts the runtime, counts it as awake only after a generated token, restarts
// it when it dies or hangs, drains it before a sleep, and answers the control
// plane's calls. It does not decide when to sleep or wake.
//
// One goroutine, [Supervisor.Run], owns all state. A call (wake, sleep, stop)
// sets the wanted state and waits; the owner then moves step by step:
//
//		off ─(fetching)─► starting ─token─► awake ◄──reopen── draining
//		 ▲                │ failure          │ ▲                 │ idle
//		 │                ▼                  │ └──token── waking │
//		 └──────────── ending ◄──stop/hang───┘              ▲    ▼
//		                  ▲                                 │ sleeping
//		                  └──────────stop────────────── asleep ◄─┘
//
//	 1. At most one operation on the runtime is under way: fetch, start, wake,
//	    sleep, end or a health probe. Each is a goroutine that sends its result.
//	 2. Between operations the owner compares the present with the wanted state and
//	    makes the next move (see step).
//	 3. Every change of state is reported at once, with a growing number.
//
// Which call overrides which:
//
//   - A call with a lower epoch than one that was seen is refused (409 stale_epoch).
//   - A wake during a drain ends the drain, unless the runtime has already been told
//     to sleep; the sleep is answered 409. If it has been told, it wakes once it sleeps.
//   - A sleep during a start or wake waits for its end; callers that waited for the
//     wake are answered first. A sleep during the fetch of a model ends the fetch.
//   - A sleep ends the attempts of an instance that can't start: there is no process,
//     so it is asleep at level 2, and a wake starts one.
//   - A stop overrides everything, and nothing overrides it.
//
// Failures: a runtime that dies or hangs is ended with all its descendants and
// started again after a pause. The pause doubles from 100 ms to 10 s, and starts over
// once the runtime was awake for longer than it. After three failed starts or wakes in
// a row, or a permanent failure, the runtime stays unhealthy until a wake asks for it.
//
// A crash is seen at once; a hang by probes that ask for a token. An idle runtime
// that refuses a probe has failed; one unanswered probe proves nothing. While requests
// run, any part of an answer is proof of life, and a probe is sent only when none came
// for an interval. That probe may wait behind those requests. So it condemns the runtime
// only if there is no other progress: no part of an answer, no counted token, and, for a
// while, no use of processors (see health.go).
//
// A sidecar, which somebody else starts and stops, is a runtime without a process:
// ending it means to detach from it, starting it means to wait until it generates. It
// is never given up, and sleeps in place or not at all.
//
// Requests enter by the [Gate], which is open only while the runtime is awake.
// The owner closes it before it drains, so none can slip in between. A refusal has a
// Retry-After that is estimated from the last start or wake.
//
// A supervisor can leave its runtime to the next one ([Supervisor.Leave], or its
// process is killed), which reads the saved notes ([Note]).
package supervise
