// Package joining reads how clusters join front doors: the flags of a cluster ([Flags]) and the file of a
// front door ([Read]). The programs of one machine and of a cluster share it.
//
// It refuses a cluster that could not prove who it is, a certificate that can't be read, and a field that it does not know.
package joining
