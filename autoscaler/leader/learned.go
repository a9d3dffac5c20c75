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

// Bounds of the learned rhythms, and how often they are written. A ConfigMap holds a mebibyte.
const (
	learnedVersion = 2
	mostLearned    = 800 << 10 // bytes
	learnedEvery   = 5 * time.Minute
)

// learned keeps the learned rhythms of functions in a ConfigMap, for the next leader. It is optional: read and write errors are logged, and the
// ConfigMap may be emptied at any time. It implements [autoscaler.Memory]; rhythms is read before the core exists, and does not change.
type learned struct {
	kube    kubernetes.Interface
	log     *slog.Logger
	rhythms map[api.FunctionName]string
	written string
	failed  bool // the last write failed, so the next failure is not logged
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

// Recall implements [autoscaler.Memory]. Instances themselves report how long starts and wakes take.
func (l *learned) Recall(f api.Function) autoscaler.Times {
	return autoscaler.Times{Rhythm: l.rhythms[f.Name]}
}

// keep writes the rhythms regularly until ctx ends, and not after that: see [learned.leave]. It returns nil.
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
		if ctx.Err() != nil { // then the rhythms may be empty
			return nil
		}
		err := l.write(ctx, rhythms)
		if err != nil && ctx.Err() == nil && !l.failed {
			l.log.Warn("what was learned of when functions are wanted is not kept", "error", err)
		}
		l.failed = err != nil
	}
}

// leave writes the rhythms at the end of a term, while the lease is still held: the next leader begins with them. A leader that ended before it knew
// any leaves the ConfigMap unchanged.
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

// write puts rhythms into the ConfigMap, if they differ.
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

// bound drops what does not fit in a ConfigMap: the shortest ones, from which least was learned.
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
