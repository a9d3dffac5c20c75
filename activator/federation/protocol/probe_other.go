//go:build !linux

package protocol

import (
	"net"
	"time"
)

func limitUnanswered(*net.TCPConn, time.Duration) {}
