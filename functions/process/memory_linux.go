package process

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/rouse-dev/rouse/api"
)

// leastShared is the least size of a mapped file that counts as shared: weights, not programs.
const leastShared = 16 * api.MiB

// Memory returns the memory that the child and its descendants occupy: their proportional set size, in which a page that n processes
// share counts 1/n. Of the largest file that they map shared and read-only, such as packed weights, all pages in memory count, and shared
// is their size. It takes longer the more memory there is: don't call it where a request waits.
func (p *Process) Memory() (all api.Bytes, shared api.SharedMemory, err error) {
	found := false
	files := map[string]mapped{}
	for _, pid := range descent(p.PID()) {
		if pss, ok := proportional(pid, files); ok {
			found = true
			all += pss
		}
	}
	if !found {
		return 0, shared, fmt.Errorf("measure the memory of process %d: it is gone, or /proc/%d/smaps may not be read", p.PID(), p.PID())
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if m := files[file]; m.whole >= leastShared && m.whole > shared.Bytes {
			shared = api.SharedMemory{File: file, Bytes: m.whole}
		}
	}
	if shared.File != "" {
		all += shared.Bytes - files[shared.File].ours
	}
	return all, shared, nil
}

// mapped is a file's resident size: the largest in one process, and the processes' proportional share.
type mapped struct{ whole, ours api.Bytes }

// proportional adds up the lines "Pss: N kB" of a process's mappings. It records shared, read-only mappings in files, by device and
// inode.
func proportional(pid int, files map[string]mapped) (sum api.Bytes, ok bool) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	file := ""
	whole := map[string]api.Bytes{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Bytes()
		key, rest, found := bytes.Cut(line, []byte(":"))
		if !found || bytes.IndexByte(key, '-') > 0 { // "7f…-7f… r--s 00000000 fd:01 1234   /path"
			if fields := bytes.Fields(line); len(fields) >= 5 {
				file = ""
				if string(fields[1]) == "r--s" && string(fields[4]) != "0" {
					file = string(fields[3]) + " " + string(fields[4])
				}
			}
			continue
		}
		if string(key) != "Pss" && (string(key) != "Rss" || file == "") {
			continue
		}
		kib, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)
		if err != nil {
			return 0, false
		}
		n := api.Bytes(kib) * api.KiB
		if string(key) == "Rss" {
			whole[file] += n
			continue
		}
		ok = true
		if sum += n; file != "" {
			m := files[file]
			m.ours += n
			files[file] = m
		}
	}
	for file, n := range whole {
		m := files[file]
		m.whole = max(m.whole, n)
		files[file] = m
	}
	return sum, ok
}
