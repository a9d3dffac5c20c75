package leader

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/usage"
)

// learnedMap is the ConfigMap as it is installed, or with what is in it.
func learnedMap(text string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: control.SystemNamespace, Name: control.LearnedConfigMap}}
	if text != "" {
		m.Data = map[string]string{control.LearnedKey: text}
	}
	return m
}

// knows is a core that has learned rhythms, and used nothing.
type knows map[api.FunctionName]string

func (k knows) Rhythms() map[api.FunctionName]string { return k }
func (knows) SaveUsage() *usage.Saved                { return nil }

// uses is a core that has used GPU time.
type uses struct{ knows }

func (uses) SaveUsage() *usage.Saved {
	return &usage.Saved{All: admin.Usage{Rows: []admin.UsageRow{{Function: "default/a", Tenant: "t", State: admin.UsageAwake, GPUSeconds: 7}}}}
}

// TestUsageOutlivesLeaders: what was used under one leader, the next one goes on from, however the first one ended.
func TestUsageOutlivesLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset(learnedMap(""))
		l := readLearned(t.Context(), kube, quietLogger())
		ctx, end := context.WithTimeout(t.Context(), keepEvery+time.Second)
		defer end()
		if err := l.keep(ctx, uses{}); err != nil || l.usage != nil {
			t.Errorf("the first leader goes on from %+v: %v", l.usage, err)
		}
		readLearned(t.Context(), kube, quietLogger()).leave(t.Context(), knows{"default/a": "x"})
		next := readLearned(t.Context(), kube, quietLogger())
		if next.usage == nil || next.usage.All.Rows[0].GPUSeconds != 7 || next.rhythms["default/a"] != "x" {
			t.Errorf("the next leader goes on from %+v and %v", next.usage, next.rhythms)
		}
	})
}

// TestLearnedOutlivesLeaders: what one leader has learned, the next one recalls.
func TestLearnedOutlivesLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset(learnedMap(""))
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		lead := func(known map[api.FunctionName]string) (before string) {
			l := readLearned(t.Context(), kube, logger)
			ctx, end := context.WithTimeout(t.Context(), 12*time.Minute)
			defer end()
			if err := l.keep(ctx, knows(known)); err != nil {
				t.Error(err)
			}
			return l.Recall(api.Function{Name: "default/a"}).Rhythm
		}
		if got := lead(map[api.FunctionName]string{"default/a": "first"}); got != "" {
			t.Errorf("the first leader recalls %q", got)
		}
		if got := lead(map[api.FunctionName]string{"default/a": "second"}); got != "first" {
			t.Errorf("the second leader recalls %q", got)
		}
		updates := 0
		if got := lead(map[api.FunctionName]string{"default/a": "second"}); got != "second" {
			t.Errorf("the third leader recalls %q", got)
		}
		for _, a := range kube.Actions() {
			if a.GetVerb() == "update" {
				updates++
			}
		}
		if updates != 2 || log.Len() > 0 {
			t.Errorf("%d updates for two changes; it says %s", updates, log.String())
		}
	})
}

// TestLearnedIsLeft: what was learned since it was written last is written at the end of a term, also where ctx has ended; who knows nothing yet
// spoils nothing.
func TestLearnedIsLeft(t *testing.T) {
	kube := fake.NewClientset(learnedMap(""))
	ended, end := context.WithCancel(t.Context())
	end()
	for _, known := range []map[api.FunctionName]string{{"default/a": "late"}, {}, nil} {
		readLearned(t.Context(), kube, quietLogger()).leave(ended, knows(known))
		if got := readLearned(t.Context(), kube, quietLogger()).Recall(api.Function{Name: "default/a"}).Rhythm; got != "late" {
			t.Errorf("after a term that knew %q the next leader recalls %q", known, got)
		}
	}
}

// TestLearnedThatIsNone: what is not there, damaged or of another version is said once, and leaders go on.
func TestLearnedThatIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, m := range map[string]*corev1.ConfigMap{"missing": nil, "damaged": learnedMap(`{"version":1,"rhy`), "another version": learnedMap(`{"version":1,"rhythms":{"default/a":"x"}}`),
			"changed": learnedMap(`{"version":2,"checksum":"01234567","value":{"default/a":"x"}}`)} {
			kube := fake.NewClientset()
			if m != nil {
				kube = fake.NewClientset(m)
			}
			var log bytes.Buffer
			l := readLearned(t.Context(), kube, slog.New(slog.NewTextHandler(&log, nil)))
			if got := strings.Count(log.String(), "\n"); got != 1 || l.Recall(api.Function{Name: "default/a"}).Rhythm != "" {
				t.Errorf("%s: it says %q and recalls %q", name, log.String(), l.rhythms)
			}
			ctx, end := context.WithTimeout(t.Context(), time.Hour)
			if err := l.keep(ctx, knows{"default/a": "new"}); err != nil {
				t.Error(err)
			}
			end()
			next := readLearned(t.Context(), kube, quietLogger())
			if want := m != nil; (next.Recall(api.Function{Name: "default/a"}).Rhythm == "new") != want {
				t.Errorf("%s: afterwards %q is recalled", name, next.rhythms)
			}
			if got := strings.Count(log.String(), "\n"); got > 2 {
				t.Errorf("%s: an hour has %d lines: %s", name, got, log.String())
			}
		}
	})
}

// TestLearnedIsBounded: a ConfigMap holds what is kept.
func TestLearnedIsBounded(t *testing.T) {
	rhythms := map[api.FunctionName]string{"default/short": "x"}
	for k := range 3000 {
		rhythms[api.FunctionName(fmt.Sprintf("default/f%04d", k))] = strings.Repeat("x", 500)
	}
	kube := fake.NewClientset(learnedMap(""))
	if err := readLearned(t.Context(), kube, quietLogger()).write(t.Context(), rhythms, nil); err != nil {
		t.Fatal(err)
	}
	m, err := kube.CoreV1().ConfigMaps(control.SystemNamespace).Get(t.Context(), control.LearnedConfigMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(m.Data[control.LearnedKey]); n > 1<<20 || n < mostLearned/2 || rhythms["default/short"] != "" {
		t.Errorf("%d bytes are kept, want at most a mebibyte, and least of what says least", n)
	}
}
