package agent

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// maxSaid bounds the functions in one message.
const maxSaid = 500

// say sends the changes, and a beat if beat is true.
func (s *session) say(beat bool) error {
	for {
		up, more := s.next(beat)
		if up == nil {
			return nil
		}
		if err := s.stream.Send(up); err != nil {
			return err
		}
		if !more {
			return nil
		}
		beat = false
	}
}

// next returns the next message; nil: nothing to send.
func (s *session) next(beat bool) (_ *protocol.Up, more bool) {
	a := s.f.a
	functions, wakes := a.deps.Functions(), s.woken(beat)
	a.mu.Lock()
	defer a.mu.Unlock()
	up := &protocol.Up{Leaving: a.leaving, Applied: s.applied, Wakes: wakes}
	s.applied = nil
	if s.all {
		if a.deps.Applier != nil && len(a.cfg.Accept.Functions) > 0 {
			up.Accepts = &protocol.Accepts{Functions: a.cfg.Accept.Functions, Memory: a.cfg.Accept.Memory}
		}
		for _, spec := range functions {
			s.dirty[spec.Name] = true
		}
	}
	for _, spec := range functions {
		if len(up.Functions) == maxSaid {
			break
		}
		if !s.dirty[spec.Name] {
			continue
		}
		now := a.state(s.f, spec)
		if last, ok := s.said[spec.Name]; ok && !beat && onlyLoad(last, now) {
			continue // it stays dirty until the next beat
		}
		delete(s.dirty, spec.Name)
		s.said[spec.Name] = now
		up.Functions = append(up.Functions, now)
	}
	if len(up.Functions) < maxSaid {
		for name := range s.dirty {
			if slices.ContainsFunc(functions, func(f api.Function) bool { return f.Name == name }) {
				continue
			}
			delete(s.dirty, name) // it is no longer served
			if _, said := s.said[name]; said {
				delete(s.said, name)
				up.Functions = append(up.Functions, protocol.Function{Name: name})
			}
		}
		up.Complete = s.all
		s.all = false
	}
	places := 0
	for _, said := range s.said {
		places += said.Places
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
	return up, s.all || len(up.Functions) == maxSaid
}

// woken returns the records of wakes caused by the front door's demand, as far as available. Each is sent once, with
// a beat.
func (s *session) woken(beat bool) (list []protocol.Wake) {
	if !beat {
		return nil
	}
	a := s.f.a
	a.mu.Lock()
	wanted := maps.Clone(s.traces)
	a.mu.Unlock()
	for name, trace := range wanted {
		if len(list) == maxWakes {
			break
		}
		for _, o := range a.deps.Wakes(name) {
			if o.Trace == trace {
				list = append(list, protocol.WakeOf(o))
				a.mu.Lock()
				if s.traces[name] == trace {
					delete(s.traces, name)
				}
				a.mu.Unlock()
				break
			}
		}
	}
	return list
}

// maxWakes bounds the records in one message.
const maxWakes = 8

// onlyLoad reports whether two states of a function differ only in their load, which beats carry.
func onlyLoad(a, b protocol.Function) bool {
	a.Running, a.Waiting, a.Expected = b.Running, b.Waiting, b.Expected
	return reflect.DeepEqual(a, b)
}
