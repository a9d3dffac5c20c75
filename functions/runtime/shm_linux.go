package runtime

import (
	"syscall"

	"github.com/rouse-dev/rouse/api"
)

// sharedMemory returns the size of /dev/shm.
func sharedMemory() (size api.Bytes, known bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &fs); err != nil {
		return 0, false
	}
	return api.Bytes(int64(fs.Blocks) * fs.Bsize), true
}
