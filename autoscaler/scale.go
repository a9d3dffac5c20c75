package autoscaler

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// Bounds of a scale that is set from outside.
const (
	mostReplicas = 10000
	longestScale = 24 * time.Hour
)

// Scale sets how many instances of a function are kept awake for a time, whatever the demand, within its min-scale and
// max-scale; see [decide.Scale]. A later call replaces it. It returns an *[api.Error] if a value is out of range or the
// function is unknown.
func (a *Autoscaler) Scale(ctx context.Context, name api.FunctionName, replicas int, lifetime time.Duration, by string) error {
	switch {
	case replicas < 0 || replicas > mostReplicas:
		return api.BadRequest("replicas", "replicas is %d: want 0 to %d", replicas, mostReplicas)
	case lifetime < time.Second || lifetime > longestScale:
		return api.BadRequest("for", "for is %s: want 1s to %s, after which demand decides again; set it again before to keep it", lifetime, longestScale)
	}
	in := &scaleSet{Name: name, Replicas: replicas, Life: lifetime, By: by, refused: make(chan error, 1)}
	refused, err := answerTo(ctx, a, in, in.refused)
	if err != nil {
		return err
	}
	return refused
}

func (p *scaleSet) apply(a *loop) {
	f := a.functions[p.Name]
	if f == nil || f.Undeclared || f.removed {
		reply(p.refused, error(api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "there is no function %s", p.Name)))
		return
	}
	a.setScale(f, decide.Scale{Replicas: p.Replicas, Until: a.now.Add(p.Life), By: p.By})
	reply(p.refused, nil)
}

// setScale sets f's scale, and records a decision if it changed.
func (a *loop) setScale(f *function, s decide.Scale) {
	now := a.now
	old := f.Function.Scale
	f.Function.Scale = s
	if old.On(now) && old.Replicas == s.Replicas && old.By == s.By {
		return // only renewed
	}
	reason := s.String()
	if n := s.Bound(f.Spec); n != s.Replicas {
		reason += fmt.Sprintf("; within min-scale %d and max-scale %d that is %d", f.Spec.MinScale, f.Spec.MaxScale, n)
	}
	a.tell(api.Decision{At: now, Function: f.Spec.Name, Action: "scale", Reason: reason})
}
