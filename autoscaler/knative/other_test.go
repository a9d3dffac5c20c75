package knative

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"

	"github.com/rouse-dev/rouse/config"
)

func TestAMissingClassIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		age         time.Duration
		want        string
	}{
		"ours":           {map[string]string{config.AnnotationClass: config.Class, "rouse.dev/model": "pico"}, 0, ""},
		"somebody's":     {map[string]string{config.AnnotationClass: "kpa.autoscaling.knative.dev"}, 0, ""},
		"without class":  {map[string]string{"rouse.dev/sleep-after": "1m", "rouse.dev/model": "pico"}, 0, "rouse.dev/model does nothing here"},
		"misspelt class": {map[string]string{config.AnnotationClass: "gpu.rouse.dev", "rouse.dev/model": "pico"}, 0, "this one has gpu.rouse.dev"},
		"from before":    {map[string]string{"rouse.dev/model": "pico"}, time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			events := record.NewFakeRecorder(1)
			warnMissingClass(events).OnAdd(&autoscalingv1alpha1.PodAutoscaler{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "tiny-00001", Annotations: tt.annotations, CreationTimestamp: metav1.NewTime(time.Now().Add(-tt.age)),
			}}, false)
			got := ""
			select {
			case got = <-events.Events:
			default:
			}
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("event %q, want one with %q", got, tt.want)
			}
		})
	}
}
