package infer

import (
	"context"
	"fmt"
	"sync"

	"github.com/rouse-dev/rouse/engine/lora"
)

// State is the cache, adapters and sleep level of an [Inferencer] without arithmetic. P is the cache's value
// for one position. The zero value is awake.
type State[P any] struct {
	Mu       sync.Mutex // guards the fields below
	Cache    []P        // nil after Sleep and Close
	Adapters map[int32]*lora.Adapter
	level    int
	closed   bool
}

// Ready returns [ErrClosed] or [ErrAsleep] if the device cannot compute. Mu must be held.
func (s *State[P]) Ready() error {
	switch {
	case s.closed:
		return ErrClosed
	case s.level > 0:
		return ErrAsleep
	}
	return nil
}

// Level returns the sleep level, 0 when awake.
func (s *State[P]) Level() int {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.level
}

// LoadAdapter implements [Inferencer]. Any adapter fits.
func (s *State[P]) LoadAdapter(id int32, a *lora.Adapter) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case id <= 0 || s.Adapters[id] != nil:
		return fmt.Errorf("load adapter %s: id %d is in use or not above 0", a.Name, id)
	}
	if s.Adapters == nil {
		s.Adapters = map[int32]*lora.Adapter{}
	}
	s.Adapters[id] = a
	return nil
}

// UnloadAdapter implements [Inferencer].
func (s *State[P]) UnloadAdapter(id int32) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.Adapters[id] == nil:
		return fmt.Errorf("unload adapter %d: %w", id, ErrNoAdapter)
	}
	delete(s.Adapters, id)
	return nil
}

// Sleep implements [Inferencer].
func (s *State[P]) Sleep(level int) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case level != 1 && level != 2:
		return fmt.Errorf("sleep level %d is unknown: want 1 or 2", level)
	}
	s.level, s.Cache = max(s.level, level), nil
	return nil
}

// Wake implements [Inferencer].
func (s *State[P]) Wake(ctx context.Context) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.level > 0 && ctx.Err() != nil:
		return fmt.Errorf("wake: %w", context.Cause(ctx))
	}
	s.level = 0
	return nil
}

// Close implements [Inferencer].
func (s *State[P]) Close() error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.closed, s.Cache = true, nil
	return nil
}
