//go:build !linux

package link

import (
	"net"
	"time"
)

func limitUnanswered(*net.TCPConn, time.Duration) {}
