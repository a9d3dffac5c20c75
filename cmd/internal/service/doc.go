// Package service has rouse up run as a service of the machine: a unit of systemd, of one user or of the system, or a launchd agent. It
// makes the text, writes it, and has the service manager take it; it says each of these things, and with DryRun does none.
//
// The life of an installation:
//
//  1. What runs already is looked at. A server that was started by hand and listens where the service would is not disturbed: the
//     installation is refused, and says which process it is.
//  2. A file that somebody else has written, or has changed, is not replaced without Force.
//  3. The file is written, whole or not at all. Where it says what the one before said, nothing is restarted.
//  4. The manager reads it, starts the service now and at each boot or login. A service of ours that runs is restarted by its new
//     file: it lets requests finish first, as at each end.
//
// Uninstalling stops the service, which lets requests finish, and removes the file. What was kept, learned and fetched stays.
//
// The units are closed where models and GPUs need nothing: they can't gain rights, write to the system, or load kernel modules.
// Open stay, each for a reason that the unit has as a comment: devices (a GPU's nodes are made when it is first used), memory that
// is written and run (compilers of CUDA kernels), and locked memory (weights asleep).
//
// All functions are for one goroutine.
package service
