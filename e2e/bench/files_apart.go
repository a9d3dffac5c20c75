package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// faults come when a machine has half of the file: kill ends the last machine, stall stalls the link of the one before
// it. spoil makes the one before that send wrong data.
type faults struct{ kill, stall, spoil bool }

type outcome struct {
	took time.Duration
	sent int64 // by the source
}

// apart compares many machines that fetch a file with one, in time and bytes of the source.
func (o fileOptions) apart(ctx context.Context) (ms []report.Measurement, err error) {
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
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		one = append(one, alone.took.Seconds())
		for k := range cases {
			c := &cases[k]
			r, err := race(ctx, o, o.nodes, c.faults)
			if err != nil {
				return nil, err
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
		s := report.Of(report.Measurement{Name: name + ": sent by the source", What: what + "; bytes on the wire beside those for one machine alone", Unit: "copies"}, c.sent...)
		ms = append(ms, m, s.Gated(s.Rouse.P95 <= 1.2, "at most 1.2 copies"))
	}
	return ms, nil
}

type stage struct {
	*lan
	o        fileOptions
	dir      string
	content  []byte
	source   *machineProcess
	machines []*machineProcess
}

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
		s.source, err = s.begin(ctx, o.rate, role{As: "source", File: s.path("m.gguf")})
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

func (s *stage) close() error {
	for _, p := range s.machines {
		p.Kill()
	}
	var err error
	if s.lan != nil {
		err = s.lan.close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// begin starts a machine with a link of rate MiB a second.
func (s *stage) begin(ctx context.Context, rate int, r role) (*machineProcess, error) {
	host, err := s.add(ctx, rate<<20)
	if err != nil {
		return nil, err
	}
	r.At, r.Dir, r.Secret = s.address(host)+":8013", s.path(fmt.Sprint(host)), s.path("secret")
	r.Sum = fmt.Sprintf("%x", sha256.Sum256(s.content))
	if s.source != nil {
		r.Ref = "http://" + s.address(s.source.host) + ":8013/m.gguf#sha256=" + r.Sum
	}
	for h := 2; h <= 1+most; h++ { // the source is the first one
		r.Peers = append(r.Peers, s.address(h)+":8013")
	}
	args, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("ip", "netns", "exec", s.name(host), os.Args[0], machineProgram, string(args))
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p, _, err := Start(cmd, saysReady)
	if err != nil {
		return nil, err
	}
	m := &machineProcess{p, host, in}
	s.machines = append(s.machines, m)
	return m, nil
}

const most = 10

// machineProcess is this program again, in a network namespace.
type machineProcess struct {
	*Process
	host int
	in   io.WriteCloser
}

func (p *machineProcess) says(ctx context.Context, word string) error {
	_, err := p.Until(ctx, word)
	return err
}

// tell lets it begin.
func (p *machineProcess) tell() error {
	_, err := io.WriteString(p.in, "go\n")
	return err
}

func (s *stage) has() string { return fmt.Sprintf("%s%x", saysHas, sha256.Sum256(s.content)) }

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
		if _, err := s.begin(ctx, 2*s.o.rate, role{As: as}); err != nil {
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
		if err := fetching[n-1].says(ctx, saysHalf); err != nil {
			return outcome{}, err
		}
		fetching[n-1].Kill()
	}
	if f.stall {
		if err := errors.Join(fetching[n-2].says(ctx, saysHalf), s.stall(ctx, fetching[n-2].host)); err != nil {
			return outcome{}, err
		}
		fetching = slices.Delete(slices.Clone(fetching), n-2, n-1)
	}
	if f.kill {
		fetching = fetching[:len(fetching)-1]
	}
	for _, p := range fetching {
		if err := p.says(ctx, s.has()); err != nil {
			return outcome{}, err
		}
	}
	took := time.Since(began)
	after, err := s.sent(ctx, s.source.host)
	return outcome{took, after - before}, err
}
