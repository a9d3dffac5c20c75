//go:build !linux

package runtime

import "github.com/rouse-dev/rouse/api"

// sharedMemory reports that the size is not known.
func sharedMemory() (size api.Bytes, known bool) { return 0, false }
