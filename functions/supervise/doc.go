// Package supervise keeps one runtime as it is wanted: awake, asleep or gone.
// It starts it, believes it awake only after a generated token, starts it again
// when it dies or hangs, drains it before a sleep, and answers the control
// plane's calls. It decides nothing about when to sleep or wake.
//
// One goroutine, [Supervisor.Run], owns all state. A call (wake, sleep, stop)
// says what is wanted and waits; the owner then moves step by step:
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
//	 2. Between operations the owner compares what is with what is wanted and
//	    makes the next move (see step).
//	 3. Every change of state is reported at once, with a growing number.
//
// What overtakes what:
//
//   - A call with a lower epoch than one that was seen is refused (409 stale_epoch).
//   - A wake during a drain ends the drain, as long as the runtime has not been
//     told to sleep; the sleep is answered 409. After that, it wakes when it sleeps.
//   - A sleep during a start or wake waits for its end; those who waited for the
//     wake are answered first. A sleep during the fetch of a model ends the fetch.
//   - A sleep takes an instance that can't start out of its misery: there is no
//     process, so it is asleep at level 2, and a wake starts one.
//   - A stop overtakes all, and nothing overtakes it.
//
// Failures: a runtime that dies or hangs is ended with all its descendants and
// started again after a pause that doubles from 100 ms to 10 s and is forgotten
// once it was awake for longer than that. After three failed starts or wakes in a row, or one that
// says of itself that another try is in vain, it stays unhealthy until a wake
// asks for it.
//
// A crash is seen at once; a hang by probes that ask for a token. An idle runtime
// that refuses one has failed; one probe that is not answered proves nothing. Where
// requests run, the first part of any answer is proof of life, and a probe is sent only
// when none came for an interval; as it may have to wait behind those requests, it
// condemns the runtime only if nothing moves meanwhile: no answer, no counter of
// tokens, and, for a while, no processor (see health.go).
//
// A sidecar, which somebody else starts and stops, is a runtime without a process:
// to end it is to let go of it, to start it is to wait until it generates. It is
// never given up, and sleeps in place or not at all.
//
// Requests enter by the [Gate], which is open only while the runtime is awake.
// The owner closes it before it drains, so none can slip in between. Who is
// refused is told when to come back, from what the last start or wake took.
//
// A supervisor can leave its runtime to another one ([Supervisor.Leave], or its
// process is killed): the notes that it saves say how it stands ([Note]).
package supervise
