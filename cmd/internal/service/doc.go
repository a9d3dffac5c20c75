// Package service runs rouse up as a service of the machine: a systemd unit, of one user or of the system, or a launchd agent. It
// generates the file, writes it, and has the service manager load it; it prints each step, and with DryRun does none.
//
// The life of an installation:
//
//  1. It looks for a running server. If one was started by hand and listens on the service's address, the installation is refused, and
//     names the process.
//  2. A file that was not written here, or was changed since, is not replaced without Force.
//  3. The file is written atomically. If it is unchanged, nothing is restarted.
//  4. The manager loads it, and starts the service now and at each boot or login. A running service of ours is restarted with its new
//     file: it lets requests finish first, as at each end.
//
// Uninstalling stops the service, which lets requests finish, and removes the file. Kept, learned and fetched files stay.
//
// The units are restricted as far as models and GPUs allow: they can't gain privileges, write to the system, or load
// kernel modules. Some things stay allowed, each for a reason given in the unit's comments. They are devices (a GPU's
// nodes are created at its first use), memory that is writable and executable (compilers of CUDA kernels), and locked
// memory (sleeping weights).
//
// Nothing here is safe for concurrent use.
package service
