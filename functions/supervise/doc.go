// Package supervise keeps one runtime in its wanted state: awake, asleep or gone. It does not decide when to sleep or wake.
//
// One goroutine, [Supervisor.Run], owns all state. A call (wake, sleep, stop) sets the wanted state and waits; the owner then moves step
// by step:
//
//		off ─(fetching)─► starting ─token─► awake ◄──reopen── draining
//		 ▲                │ failure          │ ▲                 │ idle
//		 │                ▼                  │ └──token── waking │
//		 └──────────── ending ◄──stop/hang───┘              ▲    ▼
//		                  ▲                                 │ sleeping
//		                  └──────────stop────────────── asleep ◄─┘
//
//	 1. At most one operation on the runtime is under way: fetch, start, wake, sleep, end or a health probe. Each is a goroutine that sends
//	    its result.
//	 2. Between operations the owner compares the present with the wanted state and makes the next move (see step).
//	 3. Every change of state is reported at once, with a growing number.
//
// Which call overrides which:
//
//   - A call with a lower epoch than one that was seen is refused (409 stale_epoch).
//   - A wake during a drain ends the drain; the sleep is answered 409. If the runtime was already told to sleep, it wakes once it sleeps.
//   - A sleep during a start or wake waits for its end, but ends the fetch of a model and the attempts of an instance that can't start.
//   - A stop overrides everything, and nothing overrides it.
//
// A runtime that dies or hangs is ended with all its descendants and started again after a pause of 100 ms, doubled up to 10 s. After
// three failed starts or wakes in a row, or a permanent failure, it stays unhealthy until a wake asks for it.
//
// Hangs are found by probes that ask for a token (health.go).
//
// A sidecar, which somebody else starts and stops, is a runtime without a process: ending it means to detach from it, starting it to wait
// until it generates. It is never given up, and sleeps in place or not at all.
//
// A supervisor can leave its runtime to the next one ([Supervisor.Leave], or its process is killed), which reads the saved [Note].
package supervise
