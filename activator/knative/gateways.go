package knative

import (
	"context"
	"net"

	"github.com/rouse-dev/rouse/activator/picker"
)

type gateways struct {
	picker   *picker.Server
	listener net.Listener
	serving  context.Context // ends with stop
	stop     context.CancelFunc
}

func (p *process) meetGateways() error {
	if p.cfg.Picker == nil {
		return nil
	}
	s, err := picker.New(*p.cfg.Picker, picker.Deps{Handler: p.core.Handler(), Ready: p.ready, Logger: p.log})
	if err != nil {
		return err
	}
	l, err := s.Listen()
	if err != nil {
		return err
	}
	g := &gateways{picker: s, listener: l}
	g.serving, g.stop = context.WithCancel(context.Background())
	p.gateways = g
	return nil
}

// run ends with running, or when requests have finished after stop.
func (g *gateways) run(running context.Context) error {
	defer g.stop()
	return g.picker.Run(g.serving, running, g.listener)
}
