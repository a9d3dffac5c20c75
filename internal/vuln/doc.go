// Command vuln checks for known vulnerabilities with govulncheck, on machines with and without a network, and prints
// the age of its database. It never passes without a check.
//
//	vuln check [-db DB] -govulncheck PROGRAM [PACKAGES]
//	vuln pack -from FOLDER -date YYYY-MM-DD
//
// The life of a check:
//
//  1. The database is the one in -db: a folder or an archive in the layout of vuln.go.dev, or its URL. The default is
//     vuln.go.dev, and db.zip beside this file if that is unreachable.
//  2. An archive is unpacked into a temporary folder.
//  3. Its age is printed, and the modules of this build that db.zip does not cover.
//  4. govulncheck runs on it; its exit status is ours.
//
// db.zip has the entries of Go's vulnerability database (https://vuln.go.dev, CC-BY 4.0, shortened: without details
// and credits) for the standard library and the modules of go.sum. To update it, take vuln.go.dev/vulndb.zip, or
// data/osv of a clone of go.googlesource.com/vulndb, and pack it.
package main
