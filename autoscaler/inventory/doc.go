// Package inventory knows what memory there is and what functions need of it: the
// devices of a machine, what is used of its GPUs, and the experience with each
// function, learned from what its instances report.
//
// It decides nothing and reserves nothing. Who gets memory is worked out from
// its values by package decide, whose account is what the instances say.
//
//  1. [Discover] finds the host's memory and the GPUs, once, before anything starts;
//     [Config.Poll] and [DCGM.Poll] see again and again which GPUs are there and what is used of them.
//  2. Each report of an instance goes through [Experience.Started],
//     [Experience.Woken] or [Experience.Slept], and [Experience.Measured].
//  3. A plan asks [Experience.Need] what one awake instance takes,
//     [Experience.Residue] what stays after a sleep, and [Experience.Return]
//     what a return costs.
//
// Everything but Discover and Poll is a plain value: no locks, no clocks, no I/O.
package inventory
