package knative

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"

	"github.com/rouse-dev/rouse/config"
)

const reasonClass = "ClassMissing"

func warnMissingClass(events record.EventRecorder) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		pa, ok := o.(*autoscalingv1alpha1.PodAutoscaler)
		if !ok || time.Since(pa.CreationTimestamp.Time) > newFor {
			return
		}
		if message := missingClass(pa.Annotations); message != "" {
			events.Event(&corev1.ObjectReference{
				APIVersion: "serving.knative.dev/v1", Kind: "Revision", Namespace: pa.Namespace, Name: pa.Name,
			}, corev1.EventTypeWarning, reasonClass, message)
		}
	}}
}

const newFor = 5 * time.Minute

func missingClass(annotations map[string]string) string {
	class := annotations[config.AnnotationClass]
	if class == config.Class {
		return ""
	}
	if key := ourAnnotation(annotations); key != "" {
		return fmt.Sprintf("the annotation %s does nothing here: Rouse serves revisions of the class %s, and this one has %s: set the annotation %s=%s",
			key, config.Class, cmp.Or(class, "none"), config.AnnotationClass, config.Class)
	}
	return ""
}

func ourAnnotation(annotations map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(key, "rouse.dev/") {
			return key
		}
	}
	return ""
}
