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
	"github.com/rouse-dev/rouse/autoscaler/usage"
	"github.com/rouse-dev/rouse/internal/disk"
)

// A ConfigMap holds a mebibyte, of which the usage takes some 600 KiB.
const (
	learnedVersion = 2
	mostLearned    = 400 << 10 // bytes
	learnedEvery   = 5 * time.Minute
	usageVersion   = 1
	keepEvery      = 10 * time.Second
)

// learned keeps rhythms and usage in a ConfigMap for the next leader. Errors are only logged, and the ConfigMap may be
// emptied at any time. rhythms does not change once the core exists.
type learned struct {
	kube    kubernetes.Interface
	log     *slog.Logger
	rhythms map[api.FunctionName]string
	usage   *usage.Saved // by earlier leaders; may be nil
	written map[string]string
	failed  bool // the next failure is not logged
}

func readLearned(ctx context.Context, kube kubernetes.Interface, log *slog.Logger) *learned {
	l := &learned{kube: kube, log: log}
	m, err := l.get(ctx)
	if err == nil {
		l.written = m.Data
		err = errors.Join(parseLearned(l.written[control.LearnedKey], learnedVersion, &l.rhythms), parseLearned(l.written[control.UsageKey], usageVersion, &l.usage))
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

func parseLearned[T any](text string, version int, to *T) error {
	if text == "" {
		return nil
	}
	var v T
	if err := disk.Decode([]byte(text), version, &v); err != nil {
		return fmt.Errorf("ConfigMap %s: %w", control.LearnedConfigMap, err)
	}
	*to = v
	return nil
}

// Recall implements [autoscaler.Memory]. Instances report durations themselves.
func (l *learned) Recall(f api.Function) autoscaler.Times {
	return autoscaler.Times{Rhythm: l.rhythms[f.Name]}
}

// keep returns nil. It does not write after ctx: see [learned.leave].
func (l *learned) keep(ctx context.Context, core core) error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	var rhythms map[api.FunctionName]string
	due := time.Now().Add(learnedEvery)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if now := time.Now(); !now.Before(due) {
			rhythms, due = core.Rhythms(), now.Add(learnedEvery)
		}
		used := core.SaveUsage()
		if ctx.Err() != nil { // then the rhythms may be empty
			return nil
		}
		err := l.write(ctx, rhythms, used)
		if err != nil && ctx.Err() == nil && !l.failed {
			l.log.Warn("what was learned of when functions are wanted is not kept", "error", err)
		}
		l.failed = err != nil
	}
}

type core interface {
	Rhythms() map[api.FunctionName]string
	SaveUsage() *usage.Saved
}

// leave writes while the lease is still held. A leader that knows nothing leaves the ConfigMap unchanged.
func (l *learned) leave(ctx context.Context, core core) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := l.write(ctx, core.Rhythms(), core.SaveUsage()); err != nil && !l.failed {
		l.log.Warn("what was learned of when functions are wanted since it was written last is lost", "error", err)
	}
}

// write writes the ConfigMap if it differs.
func (l *learned) write(ctx context.Context, rhythms map[api.FunctionName]string, used *usage.Saved) error {
	bound(rhythms)
	raw, err := disk.Encode(learnedVersion, rhythms)
	data := maps.Clone(l.written)
	if data == nil {
		data = map[string]string{}
	}
	if len(rhythms) > 0 {
		data[control.LearnedKey] = string(raw)
	}
	if used != nil {
		raw, usageErr := disk.Encode(usageVersion, used)
		err = errors.Join(err, usageErr)
		data[control.UsageKey] = string(raw)
	}
	if err != nil || maps.Equal(data, l.written) {
		return err
	}
	m, err := l.get(ctx)
	if err != nil {
		return err
	}
	m = m.DeepCopy()
	m.Data = data
	if _, err := l.kube.CoreV1().ConfigMaps(control.SystemNamespace).Update(ctx, m, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update ConfigMap %s: %w", control.LearnedConfigMap, err)
	}
	l.written = data
	return nil
}

// bound drops the shortest ones, from which least was learned.
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
