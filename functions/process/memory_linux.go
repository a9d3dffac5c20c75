package process

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"

	"github.com/rouse-dev/rouse/api"
)

// Memory is the memory that the child and its descendants occupy: the
// proportional set size, in which a page that n processes share counts 1/n. It
// reads /proc and takes the longer the more memory there is; call it off any path
// that somebody waits on. A process that ends meanwhile counts nothing.
func (p *Process) Memory() (api.Bytes, error) {
	var total api.Bytes
	found := false
	for _, pid := range descent(p.PID()) {
		if pss, ok := proportional(pid); ok {
			found = true
			total += pss
		}
	}
	if !found {
		return 0, fmt.Errorf("measure the memory of process %d: it is gone, or /proc/%d/smaps_rollup may not be read", p.PID(), p.PID())
	}
	return total, nil
}

// proportional reads the line "Pss: N kB".
func proportional(pid int) (api.Bytes, bool) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, found := bytes.CutPrefix(lines.Bytes(), []byte("Pss:")); found {
			kib, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)
			return api.Bytes(kib) * api.KiB, err == nil
		}
	}
	return 0, false
}
