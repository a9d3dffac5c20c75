package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// lan is machines on one switch, each of them a network namespace with an address, and a link whose rate the kernel bounds
// both ways. None of it is seen in the namespace of who makes it.
type lan struct {
	prefix string // of namespaces' names
	hosts  int
}

// errNoLAN says that there can be none here.
var errNoLAN = errors.New("no network namespaces here")

// newLAN makes a switch without machines. An error that wraps errNoLAN says that this machine can't do so, and why.
func newLAN(ctx context.Context) (*lan, error) {
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("%w: they need root", errNoLAN)
	}
	for _, program := range []string{"ip", "tc"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%w: they need iproute2: %w", errNoLAN, err)
		}
	}
	l := &lan{prefix: fmt.Sprintf("rouse-files-%d-", os.Getpid())}
	err := each(ctx, "ip netns add "+l.prefix+"lan", "ip -n "+l.prefix+"lan link add lan type bridge", "ip -n "+l.prefix+"lan link set lan up")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errNoLAN, err), l.close())
	}
	return l, nil
}

// close removes everything. The processes in it have ended.
func (l *lan) close() error {
	ctx := context.Background() // what was made is removed, whatever has ended
	var failed error
	for host := 1; host <= l.hosts; host++ {
		failed = errors.Join(failed, each(ctx, "ip netns del "+l.name(host)))
	}
	return errors.Join(failed, each(ctx, "ip netns del "+l.prefix+"lan"))
}

func (l *lan) name(host int) string { return fmt.Sprint(l.prefix, host) }

func (l *lan) address(host int) string { return fmt.Sprintf("10.83.7.%d", host) }

// add adds a machine with a link of so many bytes a second each way.
func (l *lan) add(ctx context.Context, bytesPerSecond int) (host int, err error) {
	l.hosts++
	host = l.hosts
	in, port := l.name(host), fmt.Sprint("port", host)
	if err := each(ctx, "ip netns add "+in); err != nil {
		l.hosts--
		return 0, fmt.Errorf("%w: %w", errNoLAN, err)
	}
	rate := fmt.Sprintf("root tbf rate %dbit burst 256kb latency 20ms", bytesPerSecond*8)
	err = each(
		ctx,
		fmt.Sprintf("ip -n %slan link add %s type veth peer name eth0 netns %s", l.prefix, port, in),
		fmt.Sprintf("ip -n %slan link set %s master lan up", l.prefix, port),
		"ip -n "+in+" link set lo up",
		"ip -n "+in+" addr add "+l.address(host)+"/24 dev eth0",
		"ip -n "+in+" link set eth0 up",
		"tc -n "+in+" qdisc add dev eth0 "+rate,
		fmt.Sprintf("tc -n %slan qdisc add dev %s %s", l.prefix, port, rate),
	)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNoLAN, err)
	}
	return host, nil
}

// stall has nothing pass a machine's link any more, which nobody is told.
func (l *lan) stall(ctx context.Context, host int) error {
	return each(ctx, fmt.Sprintf("ip -n %slan link set port%d type bridge_slave state 0", l.prefix, host))
}

// sent is how many bytes a machine has put on its link, with all headers and all that was sent again.
func (l *lan) sent(ctx context.Context, host int) (int64, error) {
	out, err := exec.CommandContext(ctx, "ip", "-n", l.name(host), "-s", "-j", "link", "show", "eth0").Output()
	if err != nil {
		return 0, fmt.Errorf("count what %s has sent: %w", l.name(host), err)
	}
	var links []struct {
		Stats struct {
			Tx struct {
				Bytes int64 `json:"bytes"`
			} `json:"tx"`
		} `json:"stats64"`
	}
	if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 {
		return 0, fmt.Errorf("count what %s has sent: %q: %w", l.name(host), out, err)
	}
	return links[0].Stats.Tx.Bytes, nil
}

// each runs commands one after another, until one fails.
func each(ctx context.Context, commands ...string) error {
	for _, c := range commands {
		words := strings.Fields(c)
		if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
