// Package joining reads the configuration for joining front doors: a cluster's flags ([Flags]) and a front door's
// file ([Read]). The programs of one machine and of a cluster share it.
//
// It refuses a cluster without a credential, an unreadable certificate, and an unknown field.
package joining
