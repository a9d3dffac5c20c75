// Package inventory knows what memory there is and what functions need of it. It decides nothing and reserves nothing.
// All but [Discover] and the polls are plain values: no locks, no clocks, no I/O.
package inventory
