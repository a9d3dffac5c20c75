// Command vuln looks for known vulnerabilities with govulncheck, on machines with and without a
// network, and says how old what it knows is. It never passes without having looked.
//
//	vuln check [-db DB] -govulncheck PROGRAM [PACKAGES]
//	vuln pack -from FOLDER -date YYYY-MM-DD
//
// The life of a check:
//
//  1. The database is the one that -db names: a folder or an archive in the layout of vuln.go.dev, or
//     its URL. Without one it is vuln.go.dev, and where that can't be reached, db.zip beside this file.
//  2. An archive is unpacked into a temporary folder.
//  3. Its age is printed, and the modules of this build that db.zip was not made for.
//  4. govulncheck runs on it; its exit status is ours.
//
// db.zip has the entries of Go's vulnerability database (https://vuln.go.dev, CC-BY 4.0, shortened:
// without details and credits) for the standard library and the modules of go.sum. To make it
// anew, take vuln.go.dev/vulndb.zip, or data/osv of a clone of go.googlesource.com/vulndb, and pack it.
package main
