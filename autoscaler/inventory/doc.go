// Package inventory knows what memory there is and what functions need of it: the devices of a machine, the use of its
// GPUs, and the experience with each function. It decides nothing and reserves nothing.
//
// Everything but [Discover] and the polls is a plain value: no locks, no clocks, no I/O.
package inventory
