package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// faults selects faults of machines in mid-transfer. kill kills the last one when it has half of the file. stall stalls
// the link of the one before it then. spoil makes the one before that send wrong data.
type faults struct{ kill, stall, spoil bool }

// apart does what together does with a process and a network namespace for each machine, and with machines that fail.
func apart(ctx context.Context, o fileOptions, add func(...report.Measurement)) error {
	what := fmt.Sprintf("a file of %d MiB from a source of %d MiB/s, links of %d MiB/s each way; a process and a network namespace each", o.size, o.rate, 2*o.rate)
	cases := []struct {
		name       string
		faults     faults
		took, sent []float64
	}{{name: ""}, {name: ", one is killed", faults: faults{kill: true}}, {name: ", one's link stalls", faults: faults{stall: true}}, {name: ", one spoils what it sends", faults: faults{spoil: true}}}
	var one []float64
	for range o.reps {
		alone, err := race(ctx, o, 1, faults{})
		if errors.Is(err, errNoLAN) {
			fmt.Println("skipped:", err)
			return nil
		}
		if err != nil {
			return err
		}
		one = append(one, alone.took.Seconds())
		for k := range cases {
			c := &cases[k]
			r, err := race(ctx, o, o.nodes, c.faults)
			if err != nil {
				return err
			}
			c.took, c.sent = append(c.took, r.took.Seconds()), append(c.sent, float64(r.sent)/float64(alone.sent)) // with all headers, both
		}
	}
	for _, c := range cases {
		name := fmt.Sprintf("%d machines%s", o.nodes, c.name)
		m := report.Compare(report.Measurement{Name: name, What: what + ": until the last one has it that is not ended, or cut off", Unit: "s", Against: "one machine alone"}, c.took, one)
		if !c.faults.stall { // a waiting machine can't know sooner
			m = m.Gated(m.Ratio <= 1.3, "at most 1.3 x of one")
		}
		add(m)
		s := report.Measurement{Name: name + ": sent by the source", What: what + "; bytes on the wire beside those for one machine alone", Unit: "copies", N: o.reps, Rouse: report.Summarise(c.sent)}
		add(s.Gated(s.Rouse.P95 <= 1.2, "at most 1.2 copies"))
	}
	return nil
}

// stage is a LAN with a source and the file that it has.
type stage struct {
	*lan
	o        fileOptions
	dir      string
	content  []byte
	source   *machineProcess
	machines []*machineProcess
}

// newStage begins with a source alone.
func newStage(ctx context.Context, o fileOptions) (*stage, error) {
	dir, err := os.MkdirTemp("", "bench-files")
	if err != nil {
		return nil, err
	}
	s := &stage{o: o, dir: dir, content: make([]byte, o.size<<20)}
	_, _ = rand.NewChaCha8([32]byte{1}).Read(s.content)
	err = errors.Join(os.WriteFile(s.path("m.gguf"), s.content, 0o600), os.WriteFile(s.path("secret"), []byte("a secret of this benchmark"), 0o600))
	if err == nil {
		s.lan, err = newLAN(ctx)
	}
	if err == nil {
		s.source, err = s.begin(ctx, o.rate, role{as: "source", file: s.path("m.gguf")})
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

// close ends all processes, and removes what there was.
func (s *stage) close() error {
	for _, p := range s.machines {
		p.kill()
	}
	var err error
	if s.lan != nil {
		err = s.lan.close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// begin starts a machine with a link of the given rate in MiB a second, and waits until it listens.
func (s *stage) begin(ctx context.Context, rate int, r role) (*machineProcess, error) {
	host, err := s.add(ctx, rate<<20)
	if err != nil {
		return nil, err
	}
	r.at, r.dir, r.secret = s.address(host)+":8013", s.path(fmt.Sprint(host)), s.path("secret")
	r.sum = fmt.Sprintf("%x", sha256.Sum256(s.content))
	if s.source != nil {
		r.ref = "http://" + s.address(s.source.host) + ":8013/m.gguf#sha256=" + r.sum
	}
	var peers []string
	for h := 2; h <= 1+most; h++ { // the source is the first one
		peers = append(peers, s.address(h)+":8013")
	}
	r.peers = strings.Join(peers, ",")
	p, err := startMachine(s.name(host), r)
	if err != nil {
		return nil, err
	}
	p.host = host
	s.machines = append(s.machines, p)
	return p, p.until(ctx, saysReady)
}

// most bounds the machines beside the source: those that fetch at once, and two that come later.
const most = 10

// has is the output of a machine that has the file.
func (s *stage) has() string { return fmt.Sprintf("%s%x", saysHas, sha256.Sum256(s.content)) }

// race lets n machines fetch the file at once.
func race(ctx context.Context, o fileOptions, n int, f faults) (outcome, error) {
	s, err := newStage(ctx, o)
	if err != nil {
		return outcome{}, err
	}
	r, err := s.race(ctx, n, f)
	return r, errors.Join(err, s.close())
}

func (s *stage) race(ctx context.Context, n int, f faults) (outcome, error) {
	for i := range n {
		as := "node"
		if f.spoil && i == n-3 {
			as = "spoiler"
		}
		if _, err := s.begin(ctx, 2*s.o.rate, role{as: as}); err != nil {
			return outcome{}, err
		}
	}
	before, err := s.sent(ctx, s.source.host)
	if err != nil {
		return outcome{}, err
	}
	began := time.Now()
	fetching := s.machines[1:]
	for _, p := range fetching {
		if err := p.tell(); err != nil {
			return outcome{}, err
		}
	}
	if f.kill {
		if err := fetching[n-1].until(ctx, saysHalf); err != nil {
			return outcome{}, err
		}
		fetching[n-1].kill()
	}
	if f.stall {
		if err := errors.Join(fetching[n-2].until(ctx, saysHalf), s.stall(ctx, fetching[n-2].host)); err != nil {
			return outcome{}, err
		}
		fetching = slices.Delete(slices.Clone(fetching), n-2, n-1)
	}
	if f.kill {
		fetching = fetching[:len(fetching)-1]
	}
	for _, p := range fetching {
		if err := p.until(ctx, s.has()); err != nil {
			return outcome{}, err
		}
	}
	took := time.Since(began)
	after, err := s.sent(ctx, s.source.host)
	return outcome{took, after - before}, err
}

// named reports whether any machine's log says this of a machine.
func (s *stage) named(says string, p *machineProcess) bool {
	return slices.ContainsFunc(s.machines, func(o *machineProcess) bool { return o.said(says, s.address(p.host)+":8013") })
}
