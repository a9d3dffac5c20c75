//go:build !linux

package runtime

import "github.com/rouse-dev/rouse/api"

func sharedMemory() (size api.Bytes, known bool) { return 0, false }
