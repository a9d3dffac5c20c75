//go:build !linux && !darwin

package inbound

import "net"

func boundUnsent(net.Conn) {}
