package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/rouse-dev/rouse/api/admin"
)

func (s *server) admin() *Admin {
	return NewAdmin(AdminConfig{
		Decider: s.Decider, Info: func() any { return s.Info() }, Resolve: s.Fleet.Resolve, Activity: s.Activators.Stats, Report: s.Activators.Report, Clusters: s.Activators.Clusters, Picks: s.Activators.Picks, Far: s.Activators.Far,
		Logs: s.logs, Events: s.Events, None: ": a Knative Service is one if its revision has the annotation autoscaling.knative.dev/class: gpu.autoscaling.rouse.dev",
	})
}

// logs puts an instance's name before its lines if there are several.
func (s *server) logs(ctx context.Context, v admin.Function, n int, follow bool) (pass func(line func(string) error), err error) {
	var sources []logSource
	var failed error
	for _, i := range v.Instances {
		client, endpoint, err := s.Fleet.Reach(i.Instance)
		if err == nil {
			var body io.ReadCloser
			if body, err = client.Logs(ctx, endpoint, n, follow); err == nil {
				sources = append(sources, logSource{string(i.Instance), body})
				continue
			}
		}
		failed = fmt.Errorf("read the log of %s: %w", i.Instance, err)
	}
	if len(sources) == 0 && failed != nil {
		return nil, failed
	}
	return func(line func(string) error) {
		out := &lines{line: line}
		if failed != nil {
			out.write(failed.Error())
		}
		var all sync.WaitGroup
		for _, src := range sources {
			prefix := ""
			if len(v.Instances) > 1 {
				prefix = src.name + " | "
			}
			all.Go(func() { src.copy(out, prefix) })
		}
		all.Wait()
	}, nil
}

type logSource struct {
	name string
	body io.ReadCloser
}

const maxLine = 64 << 10

func (l logSource) copy(out *lines, prefix string) {
	defer l.body.Close()
	in := bufio.NewReaderSize(l.body, maxLine)
	for {
		line, _, err := in.ReadLine()
		if err != nil { // the instance or the reader has left
			return
		}
		out.write(prefix + string(line))
	}
}

type lines struct {
	mu   sync.Mutex // guards line
	line func(string) error
}

func (l *lines) write(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.line(line) // a reader that has left ends the request's context
}
