package agent

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

const maxReported = 500

func (s *session) report(beat bool) error {
	for more := true; more; beat = false {
		var up *protocol.Up
		if up, more = s.nextMessage(beat); up == nil {
			return nil
		}
		if err := s.stream.Send(up); err != nil {
			return err
		}
	}
	return nil
}

// What is not reported must be put back.
func (s *session) takeDirty() map[api.FunctionName]bool {
	s.f.a.marking.Lock()
	defer s.f.a.marking.Unlock()
	dirty := s.dirty
	s.dirty = map[api.FunctionName]bool{}
	return dirty
}

func (s *session) putBackDirty(left map[api.FunctionName]bool) {
	s.f.a.marking.Lock()
	defer s.f.a.marking.Unlock()
	maps.Copy(s.dirty, left)
}

func (s *session) nextMessage(beat bool) (_ *protocol.Up, more bool) {
	a := s.f.a
	var wakes []protocol.Wake
	if beat {
		wakes = s.takeWakes()
	}
	dirty := s.takeDirty() // before the functions, which may change meanwhile
	defer s.putBackDirty(dirty)
	functions := a.deps.Functions()
	a.mu.Lock()
	defer a.mu.Unlock()
	up := &protocol.Up{Leaving: a.leaving, Applied: s.applied, Wakes: wakes}
	s.applied = nil
	if s.all && a.deps.Applier != nil && len(a.cfg.Accept.Functions) > 0 {
		up.Accepts = &protocol.Accepts{Functions: a.cfg.Accept.Functions, Memory: a.cfg.Accept.Memory}
	}
	for _, spec := range functions {
		if len(up.Functions) == maxReported {
			more = true
			break
		}
		last, reported := s.reported[spec.Name]
		if !dirty[spec.Name] && (reported || !s.all) {
			continue
		}
		now := a.state(s.f, spec)
		if reported && !beat && onlyLoad(last, now) {
			continue // it stays dirty until the next beat
		}
		delete(dirty, spec.Name)
		s.reported[spec.Name] = now
		up.Functions = append(up.Functions, now)
	}
	if !more {
		for name := range dirty {
			if slices.ContainsFunc(functions, func(f api.Function) bool { return f.Name == name }) {
				continue
			}
			delete(dirty, name) // it is no longer served
			if _, reported := s.reported[name]; reported {
				delete(s.reported, name)
				up.Functions = append(up.Functions, protocol.Function{Name: name})
			}
		}
		up.Complete, s.all = s.all, false
	}
	places := 0
	for _, state := range s.reported {
		places += state.Places + state.Waits
	}
	s.server.Keep(places)
	if beat {
		s.beat++
		up.Beat, up.Way, up.Doubles = s.beat, s.way, a.doubles
		s.sent[s.beat] = time.Now()
		delete(s.sent, s.beat-64) // too old to be answered
	}
	if !beat && len(up.Functions)+len(up.Applied) == 0 && !up.Complete && !up.Leaving {
		return nil, false
	}
	return up, more
}

// takeWakes returns each record once.
func (s *session) takeWakes() (list []protocol.Wake) {
	a := s.f.a
	a.mu.Lock()
	wanted := maps.Clone(s.traces)
	a.mu.Unlock()
	for name, trace := range wanted {
		records := a.deps.Wakes(name)
		k := slices.IndexFunc(records, func(o api.WakeTrace) bool { return o.Trace == trace })
		if k < 0 || len(list) == maxWakes {
			continue
		}
		list = append(list, protocol.WakeOf(records[k]))
		a.mu.Lock()
		if s.traces[name] == trace {
			delete(s.traces, name)
		}
		a.mu.Unlock()
	}
	return list
}

const maxWakes = 8

func onlyLoad(a, b protocol.Function) bool {
	a.Running, a.Waiting, a.Expected = b.Running, b.Waiting, b.Expected
	return reflect.DeepEqual(a, b)
}
