package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// lan is network namespaces on one switch, with links whose rates the kernel bounds.
type lan struct {
	prefix string // of namespaces' names
	hosts  int
}

var errNoLAN = errors.New("no network namespaces here")

// An error wraps errNoLAN if this machine can't make one.
func newLAN(ctx context.Context) (*lan, error) {
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("%w: they need root", errNoLAN)
	}
	l := &lan{prefix: fmt.Sprintf("rouse-files-%d-", os.Getpid())}
	if _, err := l.sh(ctx, 0, "tc -V; ip netns add $lan; ip -n $lan link add lan type bridge; ip -n $lan link set lan up"); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: they need iproute2: %w", errNoLAN, err), l.close())
	}
	return l, nil
}

// The processes in it have ended.
func (l *lan) close() error {
	var failed error
	for host := range l.hosts + 1 {
		_, err := l.sh(context.Background(), host, "ip netns del $in") // what was made is removed, whatever has ended
		failed = errors.Join(failed, err)
	}
	return failed
}

// The switch is number 0.
func (l *lan) name(host int) string { return fmt.Sprint(l.prefix, host) }

func (l *lan) address(host int) string { return fmt.Sprintf("10.83.7.%d", host) }

func (l *lan) add(ctx context.Context, bytesPerSecond int) (host int, err error) {
	l.hosts++
	_, err = l.sh(ctx, l.hosts, fmt.Sprintf(`rate='root tbf rate %dbit burst 256kb latency 20ms'
ip netns add $in
ip -n $lan link add $port type veth peer name eth0 netns $in
ip -n $lan link set $port master lan up
ip -n $in link set lo up
ip -n $in addr add $at/24 dev eth0
ip -n $in link set eth0 up
tc -n $in qdisc add dev eth0 $rate
tc -n $lan qdisc add dev $port $rate`, bytesPerSecond*8))
	if err != nil {
		err = fmt.Errorf("%w: %w", errNoLAN, err)
	}
	return l.hosts, err
}

// stall drops everything silently.
func (l *lan) stall(ctx context.Context, host int) error {
	_, err := l.sh(ctx, host, "ip -n $lan link set $port type bridge_slave state 0")
	return err
}

// sent counts headers, and what was sent again.
func (l *lan) sent(ctx context.Context, host int) (bytes int64, err error) {
	out, err := l.sh(ctx, host, "ip netns exec $in cat /sys/class/net/eth0/statistics/tx_bytes")
	if err == nil {
		_, err = fmt.Sscan(out, &bytes)
	}
	return bytes, err
}

func (l *lan) sh(ctx context.Context, host int, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-ec", script)
	cmd.Env = append(os.Environ(), "lan="+l.name(0), "in="+l.name(host), fmt.Sprint("port=port", host), "at="+l.address(host))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return string(out), err
}
