// Package registration makes an instance one of a cluster's: it introduces the instance
// to the control plane, learns from it what the function is, and keeps being known.
//
// The life of an agent:
//
//  1. [Agent.Run] posts a [control.RegisterRequest], with the token that the instance
//     has made, until it is answered. It starts over after a pause that grows from
//     50 ms to 2 s, and says in the log what is in the way and what to do about it.
//  2. The first answer closes [Agent.Joined]. The instance assembles itself from
//     [Agent.Answer] and posts its events through [Agent.Transport], which adds
//     the token.
//  3. An event that is answered "unknown" (401, 403, 404 or 410) comes from a control
//     plane that has forgotten the instance, after a restart perhaps: the agent
//     joins again, and has the instance report.
//  4. [Agent.Ask] has it report too, a few times a second at most: whoever can
//     reach the instance may ask. So does a control plane that is reached again after
//     an event was lost on the way.
//
// A revision of another autoscaler class is nobody's here: the control plane says
// so (404 with the code unsupported), and the agent is [Agent.Alone] for good.
//
// What a pod tells about itself without being asked, its namespace, the cluster's
// domain and its GPUs, is in [Pod].
//
// Run is called once; all other methods may be called from any goroutine and don't block.
package registration
