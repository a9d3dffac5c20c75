// Package inventory knows what memory there is and what functions need of it: the devices of a machine, the use of its
// GPUs, and the experience with each function, learned from its instances' reports.
//
// It decides nothing and reserves nothing. Package decide uses its values to allocate memory, and computes its accounts
// from the instances' reports.
//
//  1. [Discover] finds the host's memory and the GPUs, once, before anything starts; [Config.Poll] and [DCGM.Poll] are
//     repeated to see which GPUs exist and what is used of them.
//  2. Each report of an instance goes through [Experience.Started], [Experience.Woken] or [Experience.Slept], and
//     [Experience.Measured].
//  3. A plan uses [Experience.Need] for one awake instance, [Experience.Residue] for what stays after a sleep, and
//     [Experience.Return] for the cost of a return.
//
// Everything but Discover and Poll is a plain value: no locks, no clocks, no I/O.
package inventory
