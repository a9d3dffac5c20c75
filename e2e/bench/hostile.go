package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/e2e/hostile"
)

// Limits of what a crowd may do to an honest client, and to the process.
const (
	hostileClients = 10_000
	hostileGate    = 2.0 // p99 among the crowd as a multiple of that without it
	hostileLimit   = 512 // MiB of the container
)

// hostileBodies measures an honest client beside a crowd that promises bodies, drips them or sends them without end.
func (b *localBench) hostileBodies(ctx context.Context) ([]report.Measurement, error) {
	s, err := b.startServer(ctx, b.fake(), fmt.Sprintf("GOMEMLIMIT=%dMiB", hostileLimit*9/10)) // as in a container with the limit
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	honest := s.Door
	body := chat("fake", 1, false)
	n, clients, crowdSize := b.rounds(8000), hostileClients, "10,000"
	if b.small {
		clients, crowdSize = 200, "200"
	}
	if _, err := honest.Serial(ctx, 100, pathChat, body); err != nil {
		return nil, err
	}
	quiet, err := honest.Serial(ctx, n, pathChat, body)
	if err != nil {
		return nil, err
	}
	crowd, err := startCrowd(ctx, b.self, strings.TrimPrefix(string(s.Door.Base), "http://"), clients)
	if err != nil {
		return nil, err
	}
	defer crowd.Stop()
	among, err := honest.Serial(ctx, n, pathChat, body)
	if err != nil {
		return nil, fmt.Errorf("among the crowd: %w", err)
	}
	peak, err := s.MostMemory()
	if err != nil {
		return nil, err
	}
	m := report.Compare(report.Measurement{
		Name: "an honest client among " + crowdSize + " hostile bodies", Unit: "µs", Against: "the same client alone",
		What: "chat requests of one token, one after the other over TCP on loopback to rouse up in front of a model server that does nothing, while " + crowdSize + " clients from 500 addresses announce bodies of 64 MiB and send nothing, send a byte in two seconds, or send chunks of 16 KiB each second without end, and come again when they are cut off; they are a process of the lowest priority on the same cores",
	}, among, quiet)
	ratio := report.Quantile(among, 0.99) / report.Quantile(quiet, 0.99)
	m.Note = fmt.Sprintf("p99 ratio %.2f; the process took %.0f MiB at most of the %d of its container", ratio, peak, hostileLimit)
	return []report.Measurement{m.Gated(ratio <= hostileGate && peak <= hostileLimit, "p99 ≤ %g × of alone, memory ≤ %d MiB, every request answered", hostileGate, hostileLimit)}, nil
}

// crowdProgram as the first argument makes this program the crowd.
const crowdProgram = "crowd"

// startCrowd starts the crowd as a process of its own, which gives way to what is measured as if
// it were elsewhere, and returns when all are there or were cut off.
func startCrowd(ctx context.Context, self, address string, clients int) (*Process, error) {
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", self, crowdProgram, address, strconv.Itoa(clients))
	c, _, err := Start(cmd, "gathered")
	return c, err
}

// runCrowd is the crowd's process.
func runCrowd(args []string) error {
	crowd := &hostile.Crowd{Sources: 500}
	if _, err := fmt.Sscan(strings.Join(args, " "), &crowd.Address, &crowd.Clients); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		crowd.Run(ctx)
	}()
	for ctx.Err() == nil && crowd.Open()+crowd.Refused() < crowd.Clients {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("gathered")
	<-gone
	return nil
}
