package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/internal/kept"
)

// Bounds of what is kept of functions, and how often it is written. A ConfigMap has a mebibyte.
const (
	learnedVersion = 2
	mostLearned    = 800 << 10 // bytes
	learnedEvery   = 5 * time.Minute
)

// learned is what leaders have learned of when functions are wanted, in a ConfigMap, so that the next one knows it. It helps and is never needed: what
// can't be read or written is said in a line, and the ConfigMap may be emptied at any time. It implements [autoscaler.Memory]; what the
// leader before had learned is read before there is a core, and does not change.
type learned struct {
	kube    kubernetes.Interface
	log     *slog.Logger
	rhythms map[api.FunctionName]string
	written string
	failed  bool // the last write; the next failure is no news
}

// readLearned reads the ConfigMap.
func readLearned(ctx context.Context, kube kubernetes.Interface, log *slog.Logger) *learned {
	l := &learned{kube: kube, log: log}
	m, err := l.get(ctx)
	if err == nil {
		l.written = m.Data[control.LearnedKey]
		l.rhythms, err = parseLearned(l.written)
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("what was learned of when functions are wanted can't be read, and is learned again", "error", err)
	}
	return l
}

func (l *learned) get(ctx context.Context) (*corev1.ConfigMap, error) {
	m, err := l.kube.CoreV1().ConfigMaps(control.SystemNamespace).Get(ctx, control.LearnedConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, errors.New("there is no ConfigMap " + control.LearnedConfigMap + ": install this version's manifests")
	}
	return m, err
}

func parseLearned(text string) (map[api.FunctionName]string, error) {
	if text == "" {
		return nil, nil
	}
	var rhythms map[api.FunctionName]string
	if err := kept.Read([]byte(text), learnedVersion, &rhythms); err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", control.LearnedConfigMap, err)
	}
	return rhythms, nil
}

// Recall implements [autoscaler.Memory]. How long starts and wakes take, instances say themselves.
func (l *learned) Recall(f api.Function) autoscaler.Times {
	return autoscaler.Times{Rhythm: l.rhythms[f.Name]}
}

// keep writes what is known, until ctx ends, and not after that: see [learned.leave]. It returns nil.
func (l *learned) keep(ctx context.Context, known func() map[api.FunctionName]string) error {
	tick := time.NewTicker(learnedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		rhythms := known()
		if ctx.Err() != nil { // then nothing is known
			return nil
		}
		err := l.write(ctx, rhythms)
		if err != nil && ctx.Err() == nil && !l.failed {
			l.log.Warn("what was learned of when functions are wanted is not kept", "error", err)
		}
		l.failed = err != nil
	}
}

// leave writes what is known at the end of a term, while the lease is held still: the next leader begins with it. One that ended before it
// knew anything leaves what is there.
func (l *learned) leave(ctx context.Context, rhythms map[api.FunctionName]string) {
	if len(rhythms) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := l.write(ctx, rhythms); err != nil && !l.failed {
		l.log.Warn("what was learned of when functions are wanted since it was written last is lost", "error", err)
	}
}

// write puts rhythms into the ConfigMap, if they are others than those there.
func (l *learned) write(ctx context.Context, rhythms map[api.FunctionName]string) error {
	bound(rhythms)
	raw, err := kept.Text(learnedVersion, rhythms)
	if err != nil || string(raw) == l.written {
		return err
	}
	m, err := l.get(ctx)
	if err != nil {
		return err
	}
	m = m.DeepCopy()
	if m.Data == nil {
		m.Data = map[string]string{}
	}
	m.Data[control.LearnedKey] = string(raw)
	if _, err := l.kube.CoreV1().ConfigMaps(control.SystemNamespace).Update(ctx, m, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update ConfigMap %s: %w", control.LearnedConfigMap, err)
	}
	l.written = string(raw)
	return nil
}

// bound leaves out what a ConfigMap does not hold: those of which least was learned, which are the shortest.
func bound(rhythms map[api.FunctionName]string) {
	size := 0
	order := slices.SortedFunc(maps.Keys(rhythms), func(a, b api.FunctionName) int {
		return cmp.Or(cmp.Compare(len(rhythms[b]), len(rhythms[a])), cmp.Compare(a, b))
	})
	for _, name := range order {
		if size += len(name) + len(rhythms[name]) + len(`"":"",`); size > mostLearned {
			delete(rhythms, name)
		}
	}
}
